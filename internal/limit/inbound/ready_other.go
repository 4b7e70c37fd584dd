//go:build !linux

package inbound

const hasRaw = false

func readNow(uintptr, []byte) (int, error) { panic("there is no raw connection") }
func again(error) bool                     { return false }
func blocks(error) bool                    { return false }

func closedByPeer(uintptr) bool { return false }
