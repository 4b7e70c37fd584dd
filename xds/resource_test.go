package xds

import (
	"errors"
	"fmt"
	"testing"
	"unsafe"
)

// A configuration has many resources. The type of each takes no memory, because the size class of the
// allocator has room for it.
func TestResourceSize(t *testing.T) {
	if n := unsafe.Sizeof(Resource{}); unsafe.Sizeof(uintptr(0)) == 8 && n > 96 {
		t.Errorf("a resource takes %d bytes, more than the 96 of its size class", n)
	}
}

func TestMalformedName(t *testing.T) {
	for want, err := range map[string]error{"a": fmt.Errorf("x: %w", &MalformedError{Name: "a"}), "": &MalformedError{Name: "*"}} {
		if got := MalformedName(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := MalformedName(errors.New("b")); got != "" {
		t.Error(got)
	}
}
