package groups

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// wrongName returns what is wrong with a name; "" if nothing is. Names stand in logs and on
// terminals, and people choose by them: none may look like another that has a meaning, or
// like several.
func wrongName(name string) string {
	switch {
	case name == "":
		return "a group needs a name"
	case len(name) > maxName:
		return fmt.Sprintf("a name of %d bytes: at most %d are allowed", len(name), maxName)
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(r rune) bool { return r == ',' || !unicode.IsGraphic(r) || r != ' ' && unicode.IsSpace(r) }):
		return "a name has neither commas nor control characters, nor others that are not seen"
	case strings.TrimSpace(name) != name:
		return "a name neither begins nor ends with a space"
	case name == Refuse:
		return `no group has the name "refuse", which says that nodes get none`
	case strings.EqualFold(name, Default), strings.EqualFold(name, Refuse):
		return fmt.Sprintf("%q looks like %q, which has a meaning of its own", name, strings.ToLower(name))
	}
	if a, b := mixed(name); a != "" {
		return fmt.Sprintf("a word of the name has letters of %s and of %s, which look alike", a, b)
	}
	return ""
}

// alike are scripts whose letters are taken for each other.
var alike = []struct {
	name string
	is   *unicode.RangeTable
}{{"Latin", unicode.Latin}, {"Cyrillic", unicode.Cyrillic}, {"Greek", unicode.Greek}, {"Armenian", unicode.Armenian}, {"Cherokee", unicode.Cherokee}}

// mixed returns two scripts of which letters stand side by side in a name; none if there are no
// two.
func mixed(name string) (first, second string) {
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsMark(r) {
			first = ""
			continue
		}
		for _, s := range alike {
			switch {
			case !unicode.Is(s.is, r):
			case first == "" || first == s.name:
				first = s.name
			default:
				return first, s.name
			}
		}
	}
	return "", ""
}
