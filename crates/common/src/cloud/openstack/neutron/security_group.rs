//! Security groups.

use serde::{Deserialize, Serialize};

use super::LIMIT;
use crate::cloud::field::or_empty;
use crate::cloud::openstack::Cloud;
use crate::cloud::openstack::error::Error;
use crate::cloud::openstack::request::ApiRequest;
use crate::cloud::openstack::rights::Call;

/// A security group, without its rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityGroup {
    /// Its ID.
    pub id: String,
    /// Its name; not unique.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// What its maker wrote there; may be empty.
    #[serde(default, deserialize_with = "or_empty")]
    pub description: String,
    /// Whose it is.
    #[serde(default, deserialize_with = "or_empty")]
    pub project_id: String,
    /// Its tags.
    #[serde(default, deserialize_with = "or_empty")]
    pub tags: Vec<String>,
}

/// Without its rules, which nobody reads here and which can be hundreds.
const FIELDS: [(&str, &str); 5] = [
    ("fields", "id"),
    ("fields", "name"),
    ("fields", "description"),
    ("fields", "project_id"),
    ("fields", "tags"),
];

impl Cloud {
    /// `GET /v2.0/security-groups` (role `reader`): all of the project's.
    ///
    /// # Errors
    /// Those of every list.
    pub async fn security_groups(&self) -> Result<Vec<SecurityGroup>, Error> {
        let project = self.project_id().await?;
        let query = [&[("project_id", project.as_str())][..], &FIELDS, &[LIMIT]].concat();
        self.list(ApiRequest::all(Call::SecurityGroups, &query), "security_groups").await
    }

    /// `GET /v2.0/security-groups/{id}` (role `reader`); None if Neutron says that there is none.
    ///
    /// # Errors
    /// Those of every read.
    pub async fn security_group(&self, id: &str) -> Result<Option<SecurityGroup>, Error> {
        self.find(&ApiRequest::one(Call::SecurityGroup, id).query(&FIELDS), "security_group").await
    }

    /// `DELETE /v2.0/security-groups/{id}` (role `member`). Gone already is Ok.
    ///
    /// # Errors
    /// [`Error::is_conflict`] of kind `SecurityGroupInUse` while a port has it. Those of every write.
    pub async fn delete_security_group(&self, id: &str) -> Result<(), Error> {
        self.delete(&ApiRequest::one(Call::DeleteSecurityGroup, id)).await
    }
}
