//! `CNI_ARGS`: `KEY=value;KEY=value`, as kubelet's runtimes and Multus write it.

use super::error::{Code, Error};

/// The known keys. Others are ignored, as with `IgnoreUnknown`, which every Kubernetes runtime sends. An empty value counts as unset. Of
/// a duplicate key the last one is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Args {
    /// `K8S_POD_NAMESPACE`.
    pub pod_namespace: Option<String>,
    /// `K8S_POD_NAME`.
    pub pod_name: Option<String>,
    /// `MAC`, the older form of `runtimeConfig.mac`.
    pub mac: Option<String>,
    /// `IP`, the older form of `runtimeConfig.ips`.
    pub ip: Option<String>,
}

impl Args {
    /// The variable's value.
    ///
    /// # Errors
    ///
    /// Code 4 for a part without `=`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut args = Self::default();
        // Some runtimes end with a semicolon.
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(Error::new(
                    Code::InvalidEnvironment,
                    format!("CNI_ARGS holds {pair:?}: each part must be KEY=value, with ';' between parts"),
                ));
            };
            let field = match key {
                "K8S_POD_NAMESPACE" => &mut args.pod_namespace,
                "K8S_POD_NAME" => &mut args.pod_name,
                "MAC" => &mut args.mac,
                "IP" => &mut args.ip,
                _ => continue,
            };
            *field = (!value.is_empty()).then(|| value.to_owned());
        }
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Args;
    use crate::cni::Code;

    #[test]
    fn as_multus_writes_it() {
        let args = Args::parse(
            "IgnoreUnknown=true;K8S_POD_NAMESPACE=web;K8S_POD_NAME=router-7;K8S_POD_INFRA_CONTAINER_ID=c0ffee;K8S_POD_UID=u-1;\
             MAC=02:00:00:00:00:01;IP=192.168.3.10/24",
        )
        .unwrap();
        assert_eq!(args.pod_namespace.as_deref(), Some("web"));
        assert_eq!(args.pod_name.as_deref(), Some("router-7"));
        assert_eq!(args.mac.as_deref(), Some("02:00:00:00:00:01"));
        assert_eq!(args.ip.as_deref(), Some("192.168.3.10/24"));
    }

    #[test]
    fn empty_parts_and_values_count_as_unset() {
        assert_eq!(Args::parse(";;K8S_POD_NAME=;").unwrap(), Args::default());
        assert_eq!(Args::parse("").unwrap(), Args::default());
    }

    #[test]
    fn a_value_may_contain_an_equals_sign() {
        assert_eq!(Args::parse("K8S_POD_NAME=a=b").unwrap().pod_name.as_deref(), Some("a=b"));
    }

    #[test]
    fn a_part_without_an_equals_sign_is_refused() {
        assert_eq!(Args::parse("IgnoreUnknown=1;web").unwrap_err().code, Code::InvalidEnvironment);
    }

    proptest! {
        #[test]
        fn never_a_panic(text in any::<String>()) {
            let _ = Args::parse(&text);
        }
    }
}
