package daemon

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/cli"
)

// Each flag sets only its own limit; rate 0 means no limit.
func TestEachFlagSetsItsLimit(t *testing.T) {
	parse := func(args ...string) (*limitFlags, error) {
		var b limitFlags
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		b.flags(f)
		if err := f.Parse(args); err != nil {
			t.Fatal(err)
		}
		return &b, b.check(f.Changed)
	}
	all := map[string]func(*limitFlags) int{
		"max-connections": func(b *limitFlags) int { return b.connections }, "max-streams": func(b *limitFlags) int { return b.Streams },
		"max-silent-streams": func(b *limitFlags) int { return b.Silent }, "max-polls": func(b *limitFlags) int { return b.Polls },
		"max-other-streams": func(b *limitFlags) int { return b.Others }, "max-connection-streams": func(b *limitFlags) int { return b.perConnection },
		"max-request": func(b *limitFlags) int { return b.request }, "max-node": func(b *limitFlags) int { return b.Node },
		"max-types": func(b *limitFlags) int { return b.Types }, "max-names": func(b *limitFlags) int { return b.Names },
		"max-name-length": func(b *limitFlags) int { return b.NameLen }, "max-held": func(b *limitFlags) int { return b.Held },
		"max-held-total": func(b *limitFlags) int { return b.HeldInAll }, "max-rate": func(b *limitFlags) int { return b.Rate },
		"max-address-rate": func(b *limitFlags) int { return b.AddressRate }, "max-stream-rate": func(b *limitFlags) int { return b.StreamRate },
		"max-upstream": func(b *limitFlags) int { return b.upstream.All }, "max-upstream-response": func(b *limitFlags) int { return b.upstream.Response },
		"max-first-answers": func(b *limitFlags) int { return b.FirstAnswers },
	}
	usual, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	for flag := range all {
		b, err := parse("--"+flag, "65537")
		if err != nil {
			t.Error(err)
		}
		for other, value := range all {
			if want := map[bool]int{true: 65537, false: value(usual)}[other == flag]; value(b) != want {
				t.Errorf("SAFE-1 --%s 65537: %s is %d, want %d", flag, other, value(b), want)
			}
		}
	}
	for _, flag := range []string{"max-rate", "max-address-rate", "max-stream-rate"} {
		if b, err := parse("--"+flag, "0"); err != nil || all[flag](b) != -1 {
			t.Errorf("SAFE-1 --%s 0: %d, %v", flag, all[flag](b), err)
		}
	}
	for _, flag := range []string{"max-upstream", "max-upstream-response"} {
		if _, err := parse("--"+flag, "64"); err == nil {
			t.Errorf("SAFE-14 --%s 64 is accepted", flag)
		}
	}
	if b, err := parse("--max-streams", "65537"); err != nil {
		t.Error(err)
	} else if b.deriveFrom(cli.Memory{Bytes: 1 << 20}); b.Streams != 65537 {
		t.Errorf("SAFE-14 --max-streams 65537 is %d when there is little memory", b.Streams)
	}
	if b, err := parse("--max-unfinished", "1GiB"); err != nil || b.Unfinished != 1<<30 {
		t.Errorf("SAFE-9 --max-unfinished 1GiB is %d: %v", b.Unfinished, err)
	}
}
