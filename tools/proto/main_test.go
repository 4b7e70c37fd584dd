package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The committed Go code matches the .proto files.
func TestCurrent(t *testing.T) {
	const dir = "../../proto"
	all, err := generate(t.Context(), dir)
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for name, want := range all {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != string(want) {
			t.Errorf("%s does not match its .proto file: run make proto (%v)", name, err)
		}
	}
}
