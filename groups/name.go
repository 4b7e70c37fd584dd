package groups

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// nameError returns the error of a group's name, or "". Names are in logs and on terminals, and people
// choose groups by them. So a name must not look like another one, like a reserved name, or like a list
// of names.
func nameError(name string) string {
	switch {
	case name == "":
		return "a group needs a name"
	case len(name) > maxName:
		return fmt.Sprintf("a name of %d bytes: at most %d are allowed", len(name), maxName)
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(r rune) bool { return r == ',' || !unicode.IsGraphic(r) || r != ' ' && unicode.IsSpace(r) }):
		return "a name must not have commas, control characters or invisible characters"
	case strings.TrimSpace(name) != name:
		return "a name must not begin or end with a space"
	case name == Refuse:
		return `the name "refuse" is reserved`
	case strings.EqualFold(name, Default), strings.EqualFold(name, Refuse):
		return fmt.Sprintf("%q looks like the reserved name %q", name, strings.ToLower(name))
	}
	if a, b := mixedScripts(name); a != "" {
		return fmt.Sprintf("a word of the name has letters of %s and of %s, which look alike", a, b)
	}
	return ""
}

// similarScripts are scripts with letters that look alike.
var similarScripts = []struct {
	name string
	is   *unicode.RangeTable
}{{"Latin", unicode.Latin}, {"Cyrillic", unicode.Cyrillic}, {"Greek", unicode.Greek}, {"Armenian", unicode.Armenian}, {"Cherokee", unicode.Cherokee}}

// mixedScripts returns two scripts whose letters are in one word of a name, or "".
func mixedScripts(name string) (first, second string) {
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsMark(r) {
			first = ""
			continue
		}
		for _, s := range similarScripts {
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
