//! Every call, with its users. Every request is a row of this table, so it is also the list of access rules that an application
//! credential needs (`docs/openstack-rights.md`).

use std::fmt;

use ::http::Method;

use super::service::Service;

/// A mode of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// `routegc` that reports.
    RoutegcAudit,
    /// `routegc` that removes routes.
    RoutegcEnforce,
    /// `deorbiter` that reports.
    DeorbiterReport,
    /// `deorbiter` that deletes.
    DeorbiterDelete,
}

impl User {
    /// All of them.
    pub const ALL: [User; 4] =
        [User::RoutegcAudit, User::RoutegcEnforce, User::DeorbiterReport, User::DeorbiterDelete];
}

/// As the documentation names it.
impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            User::RoutegcAudit => "routegc Audit",
            User::RoutegcEnforce => "routegc Enforce",
            User::DeorbiterReport => "deorbiter Report",
            User::DeorbiterDelete => "deorbiter Delete",
        })
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The service.
    pub service: Service,
    /// The method.
    pub method: Method,
    /// The path after the service's version (and Octavia's `/lbaas`), with `{id}` where an ID stands. Cinder's has a project
    /// before it in some clouds.
    pub path: &'static str,
    /// The modes that make the call; empty for calls that only tests make.
    pub users: &'static [User],
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $service:ident $method:ident $path:literal: $users:ident;)*) => {
        /// A call. Each has one row.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Call {
            $($(#[$doc])* $name,)*
        }

        impl Call {
            /// All of them.
            pub const ALL: &'static [Call] = &[$(Call::$name),*];

            /// Its row.
            #[must_use]
            pub fn right(self) -> Right {
                match self {
                    $(Call::$name => Right {
                        service: Service::$service,
                        method: Method::$method,
                        path: $path,
                        users: $users,
                    },)*
                }
            }
        }
    };
}

const EVERY: &[User] = &User::ALL;
const ENFORCE: &[User] = &[User::RoutegcEnforce, User::DeorbiterDelete];
const DEORBITER: &[User] = &[User::DeorbiterReport, User::DeorbiterDelete];
const ROUTEGC: &[User] = &[User::RoutegcAudit, User::RoutegcEnforce];
const NONE: &[User] = &[];
const DELETE: &[User] = &[User::DeorbiterDelete];

calls! {
    /// The extensions of Neutron.
    Extensions = Network GET "/extensions": EVERY;
    /// One router.
    Router = Network GET "/routers/{id}": EVERY;
    /// All routers of the project, or those of a name.
    Routers = Network GET "/routers": ROUTEGC;
    /// Remove routes of a router, the others stay.
    RemoveExtraroutes = Network PUT "/routers/{id}/remove_extraroutes": ENFORCE;
    /// Add routes to a router, the others stay.
    AddExtraroutes = Network PUT "/routers/{id}/add_extraroutes": NONE;
    /// Replace a router's routes, where Neutron is older than the two calls above.
    ReplaceRoutes = Network PUT "/routers/{id}": ENFORCE;
    /// One network.
    Network = Network GET "/networks/{id}": EVERY;
    /// The subnets of a network.
    Subnets = Network GET "/subnets": EVERY;
    /// Ports of a device, of a network, with an address.
    Ports = Network GET "/ports": EVERY;
    /// The project's limits.
    Quota = Network GET "/quotas/{id}": EVERY;
    /// All floating IPs of the project.
    FloatingIps = Network GET "/floatingips": DEORBITER;
    /// Delete a floating IP.
    DeleteFloatingIp = Network DELETE "/floatingips/{id}": DELETE;
    /// All security groups of the project.
    SecurityGroups = Network GET "/security-groups": DEORBITER;
    /// Delete a security group.
    DeleteSecurityGroup = Network DELETE "/security-groups/{id}": DELETE;
    /// All servers of the project.
    Servers = Compute GET "/servers/detail": EVERY;
    /// One server.
    Server = Compute GET "/servers/{id}": EVERY;
    /// All volumes of the project.
    Volumes = BlockStorage GET "/volumes/detail": DEORBITER;
    /// One volume.
    Volume = BlockStorage GET "/volumes/{id}": DEORBITER;
    /// Delete a volume.
    DeleteVolume = BlockStorage DELETE "/volumes/{id}": DELETE;
    /// All snapshots of the project.
    Snapshots = BlockStorage GET "/snapshots/detail": DEORBITER;
    /// One snapshot.
    Snapshot = BlockStorage GET "/snapshots/{id}": DEORBITER;
    /// Delete a snapshot.
    DeleteSnapshot = BlockStorage DELETE "/snapshots/{id}": DELETE;
    /// All load balancers of the project.
    LoadBalancers = LoadBalancer GET "/loadbalancers": DEORBITER;
    /// One load balancer.
    LoadBalancer = LoadBalancer GET "/loadbalancers/{id}": DEORBITER;
    /// Delete a load balancer.
    DeleteLoadBalancer = LoadBalancer DELETE "/loadbalancers/{id}": DELETE;
    /// Delete an application credential of a user.
    DeleteApplicationCredential = Identity DELETE "/users/{id}/application_credentials/{id}": DELETE;
}
