//! System calls: the only unsafe code.
