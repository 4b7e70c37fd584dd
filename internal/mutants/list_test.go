package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Every mutant still fits the code it is to break.
func TestListFits(t *testing.T) {
	text, err := os.ReadFile("mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(mutants) < 25 {
		t.Errorf("%d mutants", len(mutants))
	}
	for _, m := range mutants {
		source, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.apply(string(source)); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
