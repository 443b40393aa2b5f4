//! Errors of the login to a cluster. kube's contain the command of an exec plugin with its arguments and its environment, and all that it
//! printed: a credential can be in each of them.

use kube::client::AuthError;
use tower::BoxError;

/// The login of a request failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct LoginError(String);

/// The error of a request, without what kube adds to that of a login.
pub(super) fn without_output(error: BoxError) -> BoxError {
    match error.downcast::<AuthError>() {
        Ok(error) => LoginError(describe(&error)).into(),
        Err(error) => error,
    }
}

/// The error of the first login, at the start.
pub(super) fn describe_setup(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(error) => describe(error),
        error => error.to_string(),
    }
}

fn describe(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            format!("the exec plugin of the kubeconfig failed: {}; run it to see its output", out.status)
        }
        AuthError::AuthExecParse(_) => {
            "the exec plugin of the kubeconfig printed no valid ExecCredential; run it to see its output"
                .to_owned()
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_login_does_not_contain_the_output_of_a_plugin() {
        let out = std::process::Command::new("sh").args(["-c", "echo hidden; exit 3"]).output().unwrap();
        let failed = AuthError::AuthExecRun { cmd: "TOKEN=hidden plugin".to_owned(), out: Box::new(out) };
        let error = without_output(failed.into());
        let text = format!("{error} {error:?}");
        assert!(text.contains("exit status: 3") && !text.contains("hidden"), "{text}");
        let other = without_output(AuthError::MissingCommand.into());
        assert_eq!(other.to_string(), AuthError::MissingCommand.to_string());
        assert!(without_output(std::io::Error::other("disk").into()).is::<std::io::Error>());
    }
}
