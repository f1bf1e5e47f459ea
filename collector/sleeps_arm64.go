package collector

// olderSleeps are those of sleeps that newer architectures do not have.
var olderSleeps map[int64]string
