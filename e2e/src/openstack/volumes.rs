//! Thousands of volumes as rows of Cinder's database, because thousands of API calls would take more than a quarter of an hour.

use anyhow::{Context, Result, ensure};

use super::OpenStack;

impl OpenStack {
    /// As many copies of a volume as asked for, with its metadata, each with an ID and a name of its own (`pvc-…`): their IDs.
    /// Cinder's API shows them like other volumes.
    ///
    /// # Errors
    /// There is no such volume.
    pub fn copy_volume(&self, id: &str, copies: u32) -> Result<Vec<String>> {
        ensure_id(id)?;
        let ids = self.0.site.sql(&format!(
            "use cinder;
             create temporary table copy as
               select volumes.* from volumes join seq_1_to_{copies} where volumes.id = '{id}';
             update copy set id = uuid(), display_name = concat('pvc-', uuid());
             insert into volumes select * from copy;
             insert into volume_metadata (created_at, deleted, volume_id, `key`, value)
               select now(), 0, copy.id, origin.`key`, origin.value from copy
               join volume_metadata origin on origin.volume_id = '{id}' and not origin.deleted;
             select id from copy"
        ))?;
        let ids: Vec<String> = ids.lines().map(str::to_owned).collect();
        ensure!(ids.len() == usize::try_from(copies)?, "{} copies of volume {id}", ids.len());
        Ok(ids)
    }

    /// Sets volumes to deleted in Cinder's database, as Cinder does after it has deleted them, all at once.
    ///
    /// # Errors
    /// The database refuses.
    pub fn forget_volumes(&self, ids: &[String]) -> Result<()> {
        let list =
            ids.iter().map(|id| ensure_id(id).map(|()| format!("'{id}'"))).collect::<Result<Vec<_>>>()?;
        if list.is_empty() {
            return Ok(());
        }
        let gone = "deleted = 1, deleted_at = now()";
        let list = list.join(",");
        self.0
            .site
            .sql(&format!(
                "update cinder.volume_metadata set {gone} where volume_id in ({list});
                 update cinder.volumes set {gone}, status = 'deleted', terminated_at = now() where id in ({list})"
            ))
            .map(drop)
            .context("forget volumes")
    }
}

/// Nothing else gets into a statement.
pub(super) fn ensure_id(id: &str) -> Result<()> {
    let known = id.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    ensure!(known && !id.is_empty(), "no ID: {id}");
    Ok(())
}
