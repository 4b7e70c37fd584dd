package xds

import (
	"testing"
	"unsafe"
)

// There are as many as a configuration has: what the type of one takes is room that the
// allocator gives it anyway.
func TestResourceSize(t *testing.T) {
	if n := unsafe.Sizeof(Resource{}); unsafe.Sizeof(uintptr(0)) == 8 && n > 96 {
		t.Errorf("a resource takes %d bytes, more than the 96 of its size class", n)
	}
}
