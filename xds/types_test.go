package xds

import "testing"

// A resource is removed after the changes of every type that may refer to it. So a type that refers to
// itself would wait for ever.
func TestReferredBy(t *testing.T) {
	var reaches func(from, to *Type) bool
	reaches = func(from, to *Type) bool {
		for _, by := range from.ReferredBy() {
			if by.Is(to) || reaches(by, to) {
				return true
			}
		}
		return false
	}
	for _, typ := range Types() {
		t.Run("ADS-3 no type waits for itself: "+typ.Short, func(t *testing.T) {
			for _, typ := range []*Type{typ, typ.Legacy()} {
				if typ != nil && reaches(typ, typ) {
					t.Errorf("%s refers to itself", typ.URL)
				}
			}
		})
	}
}
