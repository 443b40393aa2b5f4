//! Constant names of annotations, labels and objects.

/// The controller: prefix of labels and annotations, field manager, reporting controller of Events.
pub const CONTROLLER: &str = "cgw-controller";

/// Annotation of a tenant's Service: its VIP, as text. Absent: the Service is not bound.
pub const VIP: &str = "cgw-controller.perimeter.dev/vip";
/// Annotation of a tenant's Service: main address of the gateway node. Empty: no gateway is known, or the Service is not bound.
pub const NODE_IP: &str = "cgw-controller.perimeter.dev/node-ip";
/// Annotation of a tenant's Service: MAC address of the gateway's tunnel interface. Empty as [`NODE_IP`].
pub const TUN_MAC: &str = "cgw-controller.perimeter.dev/tun-mac";
/// Annotation of a tenant's Service: the binding's number on every node, `0x` and eight hexadecimal digits.
pub const TUN_ID: &str = "cgw-controller.perimeter.dev/tun-id";
/// Annotation of a tenant's Service: when the gateway became MASTER, in milliseconds since 1970. Never decreases.
pub const EPOCH: &str = "cgw-controller.perimeter.dev/epoch";

/// Annotations of the store Service `hosts` begin with this; `<IP>-<port>` follows.
pub const HOST_PREFIX: &str = "cgw-controller.perimeter.dev/host.";
/// Annotations of the store Service `binds` begin with this; the VIP follows.
pub const BIND_PREFIX: &str = "cgw-controller.perimeter.dev/bind.";
/// Annotations of the store Service `providers` begin with this; the VIP follows.
pub const PROVIDER_PREFIX: &str = "cgw-controller.perimeter.dev/provider.";

/// Default names of the store Services, in the namespace of the program.
pub const HOSTS: &str = "cgw-hosts";
/// See [`HOSTS`].
pub const BINDS: &str = "cgw-binds";
/// See [`HOSTS`].
pub const PROVIDERS: &str = "cgw-providers";

/// `spec.loadBalancerClass` of a Service whose `status.loadBalancer` the controller writes.
pub const LOAD_BALANCER_CLASS: &str = "cgw-controller.perimeter.dev/vip";

/// Label of a Node that may carry VIPs: a gateway candidate. Its value is ignored.
pub const GATEWAY_LABEL: &str = "cgw-controller.perimeter.dev/gateway";

/// Audience of the tokens that callers send to the controller.
pub const AUDIENCE: &str = "cgw-controller.perimeter.dev";

/// Header with `Bearer <token>`, in place of `Authorization`, which the API server removes from a request that it proxies to the
/// controller's Service.
pub const TOKEN_HEADER: &str = "cgw-authorization";

/// Default name of the controller's Service, in the namespace of the program.
pub const SERVICE: &str = "cgw-controller";
/// Name of the port of the HTTP API in the controller's Service.
pub const API_PORT: &str = "api";
/// Default name of the ServiceAccount that an administrator's calls use.
pub const ADMIN_ACCOUNT: &str = "cgw-admin";

/// Chains of nf_tables that drop the packets of bound pods that no rule has translated: table and name with driver `vxlan`, and with
/// driver `ovs`, as iptables makes them. A gateway node without one of them must not carry VIPs.
pub const GUARDS: [(&str, &str); 2] = [("cgw", "postrouting-filter"), ("mangle", "CGW-GUARD")];
