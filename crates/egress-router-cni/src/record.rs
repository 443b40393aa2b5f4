//! What outlives a call: one small file for each attachment.
