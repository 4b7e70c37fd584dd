// Package yamlkeys reads YAML settings files, such as group.yaml and access rules. It accepts known keys
// only and reports each error with file, line and column.
package yamlkeys

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/text"
)

// MaxFile is the size limit of a file, in bytes.
const MaxFile = 1 << 20

// Open parses a file of one YAML document. The node is nil if the file is empty or has errors, which
// are then in the Problems of the reader. The kind of file is named in messages.
func Open(kind, file string, data []byte) (*Reader, *yaml.Node) {
	r := &Reader{Decoder: protoyaml.Decoder{File: file, Source: data, Ignore: []findings.Code{findings.Portability}}}
	if len(data) > MaxFile {
		r.Problems = []findings.Problem{{File: file, Code: findings.Unreadable, Message: fmt.Sprintf("the file has %d bytes: at most %d are allowed", len(data), MaxFile)}}
		return r, nil
	}
	docs, err := protoyaml.ParseYAML(file, data)
	switch {
	case err != nil:
		problem := err.(findings.Problem) //nolint:errorlint // ParseYAML returns no other type
		problem.Code = findings.Syntax
		r.Problems = []findings.Problem{problem}
		return r, nil
	case len(docs) > 1:
		r.Report(docs[1], "", "", "%s is one document", protoyaml.WithArticle(kind))
		return r, nil
	case len(docs) == 0:
		return r, nil
	}
	return r, docs[0]
}

// A Reader reads one file and collects its problems.
type Reader struct{ protoyaml.Decoder }

// Keys maps each known key of a mapping to the function that reads its value.
type Keys map[string]func(n *yaml.Node, path string)

// Each reads a mapping and reports whether n is one. An unknown key is a problem with the given code.
// The function hint may be nil; it returns where a misplaced key belongs, or "".
func (r *Reader) Each(code findings.Code, n *yaml.Node, path, of string, known Keys, hint func(key string) string) bool {
	flat := r.Flat(n, path)
	if flat == nil {
		return false
	}
	for i := 0; i+1 < len(flat.Content); i += 2 {
		key := flat.Content[i]
		take := known[key.Value]
		if take == nil {
			r.ReportAs(code, key, path, meant(key.Value, known, hint), "unknown key %s in %s", Quoted(key.Value), of)
			continue
		}
		take(Follow(flat.Content[i+1]), Join(path, key.Value))
	}
	return true
}

// meant returns a hint for an unknown key: the nearest known key, or a list of all.
func meant(key string, known Keys, hint func(key string) string) string {
	names := slices.Sorted(maps.Keys(known))
	if hint != nil {
		if h := hint(key); h != "" {
			return h
		}
	}
	if near := protoyaml.Nearest(key[:min(len(key), 100)], slices.Values(names)); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "there are " + strings.Join(names, ", ")
}

// Items reads a list, or a single value as a list of one, until take returns false.
func Items(n *yaml.Node, path string, take func(n *yaml.Node, path string, i int) bool) {
	if n.Kind != yaml.SequenceNode {
		take(n, path, 0)
		return
	}
	for i, item := range n.Content {
		if !take(Follow(item), path+"["+strconv.Itoa(i)+"]", i) {
			return
		}
	}
}

// Text reads a string, and reports a problem for any other value.
func (r *Reader) Text(n *yaml.Node, path string) string {
	v, hint := Scalar(n)
	if _, ok := v.(string); !ok {
		r.Report(n, path, hint, "a string is needed, not %s", What(n))
		return ""
	}
	return n.Value
}

// Scalar returns a string, a float64 or a bool, or nil for other nodes. The hint explains how to make it a string.
func Scalar(n *yaml.Node) (v any, hint string) {
	v = protoyaml.CoreScalar(n)
	if _, text := v.(string); v != nil && !text {
		hint = "put it in quotes"
	}
	return v, hint
}

// What describes a node in an error message.
func What(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "null"
	case n.Tag == "!!str":
		return "the string " + Quoted(n.Value)
	}
	return n.Tag[min(2, len(n.Tag)):] + " " + Short(n.Value)
}

// Short returns the beginning of s as one line.
func Short(s string) string {
	return text.Head(strings.Join(strings.Fields(s), " "), maxQuoted)
}

// maxQuoted limits a quoted value in a message, in bytes.
const maxQuoted = 100

// Quoted returns the beginning of s in quotes. It keeps spaces, because they may be the reason why a
// name does not match.
func Quoted(s string) string { return strconv.Quote(text.Head(s, maxQuoted)) }

// Follow returns the node that an alias refers to.
func Follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// Join returns the path of a key below path.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
