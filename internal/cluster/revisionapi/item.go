package revisionapi

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

// Line returns an item in the form of the API, one line of JSON.
func Line(it *revisions.Item) api.RevisionItem {
	k := it.Key()
	l := api.RevisionItem{
		Group: it.Group, Type: k.Type, Name: k.Name, Version: it.Version, Definition: string(it.Definition), Secret: it.Secret,
		File: it.Place.File, Line: it.Place.Line, Col: it.Place.Col, Path: it.Place.Path,
	}
	if r := it.Resource; r != nil {
		l.Version, l.Body, l.Aliases, l.OnDemand = r.Version, r.Body, r.Aliases, r.OnDemand
		if r.TTL > 0 {
			l.TTL = r.TTL.String()
		}
	}
	return l
}

// Shown returns a line without secrets. The function show returns the visible part of a message, and
// whether that is the whole message.
func Shown(it *revisions.Item, show func(url string, body []byte) ([]byte, bool)) api.RevisionItem {
	l := Line(it)
	if it.Resource == nil {
		return l
	}
	body, whole := show(l.Type, l.Body)
	l.Body, l.Redacted = body, !whole
	return l
}

// Place returns the key of a line's item, and its place.
func Place(l api.RevisionItem) string {
	k := revisions.Key{Group: l.Group, Type: l.Type, Name: l.Name}.String()
	if at := PlaceOf(&revisions.Item{Place: revisions.Place{File: l.File, Line: l.Line, Col: l.Col, Path: l.Path}}); at != "" {
		return at + ": " + k
	}
	return k
}

// Item returns the item of a line.
func Item(l api.RevisionItem) (*revisions.Item, error) {
	it := &revisions.Item{Group: l.Group, Secret: l.Secret, Place: revisions.Place{File: l.File, Line: l.Line, Col: l.Col, Path: l.Path}}
	switch {
	case l.Group == "":
		return nil, errors.New("group is missing")
	case l.Name == "" && l.Type != "":
		it.Type, it.Version = l.Type, l.Version
		if len(l.Body) > 0 || l.Definition != "" {
			return nil, errors.New("the version of a type has neither a body nor a definition")
		}
		return it, nil
	case l.Type == "":
		it.Definition = []byte(l.Definition)
		if l.Name != "" || len(l.Body) > 0 {
			return nil, errors.New("type is missing")
		}
		return it, nil
	case !strings.HasPrefix(l.Type, "type.googleapis.com/"):
		return nil, fmt.Errorf("type: %q is not a type URL", l.Type)
	case l.Definition != "":
		return nil, errors.New("a resource has no definition")
	}
	r := &xds.Resource{Stamp: &xds.Stamp{Name: l.Name}, Type: xds.TypeOf(l.Type), Body: l.Body, Aliases: l.Aliases, OnDemand: l.OnDemand}
	if l.TTL != "" {
		var err error
		r.TTL, err = time.ParseDuration(l.TTL)
		if err != nil || r.TTL < 0 {
			return nil, fmt.Errorf("ttl: %q is not a duration such as 30s", l.TTL)
		}
	}
	r.Seal(l.Version)
	if err := r.Check(); err != nil {
		return nil, err
	}
	it.Resource = r
	return it, nil
}
