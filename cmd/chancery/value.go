package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
)

// wrongFlag tells on behalf of cobra what is wrong with a flag.
func wrongFlag(cmd *cobra.Command, err error) error {
	if e, is := errors.AsType[*pflag.NotExistError](err); is {
		near := protoyaml.Nearest(e.GetSpecifiedName(), func(yield func(string) bool) {
			goOn := true
			cmd.Flags().VisitAll(func(f *pflag.Flag) { goOn = goOn && yield(f.Name) })
		})
		if near != "" && e.GetSpecifiedShortnames() == "" {
			return fmt.Errorf("%w: did you mean --%s?", err, near)
		}
	}
	if e, is := errors.AsType[*pflag.InvalidValueError](err); is {
		return fmt.Errorf("--%s: %w", e.GetFlag().Name, wrongValue(err))
	}
	return err
}

// wrongValue says what a flag takes that does not take its value. Its own error
// names the function of Go that could not read it.
func wrongValue(err error) error {
	e, is := errors.AsType[*pflag.InvalidValueError](err)
	if !is {
		return err
	}
	switch e.GetFlag().Value.Type() {
	case "int", "size":
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("%s is too large", e.GetValue())
		}
		if e.GetFlag().Value.Type() == "size" {
			return fmt.Errorf("%q is not a size: write a number of bytes, with a unit if you like, such as 64MiB, 64MB or 1GiB", e.GetValue())
		}
		return fmt.Errorf("%q is not a whole number", e.GetValue())
	case "duration":
		return fmt.Errorf("%q is not a duration: write a number and its unit, such as 500ms, 10s, 5m or 1h30m", e.GetValue())
	case "bool":
		return fmt.Errorf("must be true or false, not %q", e.GetValue())
	case "only":
		return e.Unwrap()
	}
	return err
}

// checkMaxFile returns an error of usage.
func checkMaxFile(bytes int64) error {
	if bytes < 1 {
		return errors.New("--max-file: must be more than 0")
	}
	if bytes > 1<<40 {
		return errors.New("--max-file: too large")
	}
	return nil
}

// setFlag, followFlag and v2Flag are flags of all commands that load a directory.
func setFlag(f *pflag.FlagSet, to *[]string) {
	f.StringArrayVar(to, "proto-set", nil, "`FILE` with the descriptors of messages that Envoy's API does not have, made by protoc --include_imports --descriptor_set_out=FILE or buf build -o FILE; may be repeated")
}

// readSets returns the messages that files may have.
func readSets(paths []string) (*envoy.Types, error) {
	types, err := envoy.Load(paths...)
	switch {
	case errors.Is(err, envoy.ErrNoSet), errors.Is(err, envoy.ErrMissing):
		return nil, fail(fmt.Errorf("--proto-set: %w", err), "make one with protoc --include_imports --descriptor_set_out=FILE, or with buf build -o FILE")
	case err != nil:
		return nil, fail(fmt.Errorf("--proto-set: %w", err), "")
	}
	return types, nil
}

// flagOf returns the flag of an option of a directory, for errors.
func flagOf(option string) string {
	return map[string]string{"MaxFile": "--max-file", "FollowLinksOutside": "--follow-links-outside", "V2": "--legacy-v2"}[option]
}

func followFlag(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "follow-links-outside", false, "follow symbolic links that point outside DIR; without this flag such a link is an error")
}

func v2Flag(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "legacy-v2", false, "accept resources of the v2 API; without this flag such a resource is an error")
}
