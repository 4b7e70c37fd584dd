package cli

// RelayReload is the answer of a relay to a reload.
const RelayReload = "a relay has no files to reload: it serves the resources of its upstream"

// StoreReload is the answer of a server with --store to a reload.
const StoreReload = "a server of a store has no files to reload: it serves each revision when it is committed"

// StandbyReload begins the answer of a server to a reload while another server commits the directory to
// the store.
const StandbyReload = "another server writes the directory to the store"
