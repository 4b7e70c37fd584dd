package dirload

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/envoy"
)

// CheckMaxFile checks the value of --max-file. Its error is an error of usage.
func CheckMaxFile(bytes int64) error {
	if bytes < 1 {
		return errors.New("--max-file: must be more than 0")
	}
	if bytes > 1<<40 {
		return errors.New("--max-file: too large")
	}
	return nil
}

// ProtoSetFlag adds --proto-set.
func ProtoSetFlag(f *pflag.FlagSet, to *[]string) {
	f.StringArrayVar(to, "proto-set", nil, "`FILE` with the descriptors of messages that Envoy's API does not contain, made by protoc --include_imports --descriptor_set_out=FILE or buf build -o FILE; may be repeated")
}

// ReadProtoSets returns the message types of Envoy's API and of the files of --proto-set.
func ReadProtoSets(paths []string) (*envoy.Types, error) {
	types, err := envoy.Load(paths...)
	switch {
	case errors.Is(err, envoy.ErrNoSet), errors.Is(err, envoy.ErrMissing):
		return nil, cli.Fail(fmt.Errorf("--proto-set: %w", err), "make one with protoc --include_imports --descriptor_set_out=FILE, or with buf build -o FILE")
	case err != nil:
		return nil, cli.Fail(fmt.Errorf("--proto-set: %w", err), "")
	}
	return types, nil
}

// FlagOfOption returns the flag that sets an option of a directory source. Error texts use it.
func FlagOfOption(option string) string {
	return map[string]string{"MaxFile": "--max-file", "FollowLinksOutside": "--follow-links-outside", "V2": "--legacy-v2"}[option]
}

// FollowLinksFlag adds --follow-links-outside.
func FollowLinksFlag(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "follow-links-outside", false, "follow symbolic links that point outside DIR; without this flag such a link is an error")
}

// LegacyV2Flag adds --legacy-v2.
func LegacyV2Flag(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "legacy-v2", false, "accept resources of the v2 API; without this flag such a resource is an error")
}
