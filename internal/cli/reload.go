package cli

// RelayReload is what a relay says that is asked to reload.
const RelayReload = "a relay has no files: it serves what its upstream gives"

// StoreReload is what a server of a store says that is asked to reload.
const StoreReload = "a server of a store has no files: it serves each revision when it is committed"

// StandbyReload is how it begins what a server says that is asked to reload while another one writes.
const StandbyReload = "another server writes what the directory says"
