// Package envoybinary has a real Envoy judge resources: it is run with --mode validate on a
// bootstrap that has them. Envoy opens no port and connects to nothing then. What the
// package finds out is what that Envoy says, on the machine where it is asked.
package envoybinary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// A Resource is one that Envoy is asked about.
type Resource struct {
	Type *xds.Type
	Name string
	Body []byte // the encoded message
}

// An Answer is what became of the resources.
type Answer struct {
	// Refused says why Envoy does not take a resource, by its index; in its own words, which
	// may quote the resource.
	Refused map[int]string

	// Skipped are the indexes of those about which it was not asked: they cannot stand in a
	// bootstrap, or it was asked as often as it may be.
	Skipped []int

	// Bootstrap says why Envoy does not take what the bootstraps have. Then it was asked
	// about nothing.
	Bootstrap string

	Runs int
}

const (
	mostRuns = 300 // of Envoy, each of which takes 70 ms
	patience = time.Minute
)

// Ask asks the Envoy at a path about resources. Those that it refuses are found by halves.
// It has them beside what resources may need of the bootstraps that it is going to have.
func Ask(ctx context.Context, path string, types *envoy.Types, all []Resource, bootstraps ...protoreflect.Message) (Answer, error) {
	dir, err := os.MkdirTemp("", "chancery-check-") // of mode 0700: there may be secrets in it
	if err != nil {
		return Answer{}, err
	}
	defer os.RemoveAll(dir)
	if err := isEnvoy(ctx, path); err != nil {
		return Answer{}, err
	}
	a := &asking{types: types, path: path, file: filepath.Join(dir, "bootstrap.pb"), all: all, beside: bootstraps, Answer: Answer{Refused: map[int]string{}}}
	refusal, err := a.run(ctx, nil)
	if err == nil && refusal != "" && len(bootstraps) > 0 {
		a.Bootstrap, a.beside = refusal, nil
		refusal, err = a.run(ctx, nil)
	}
	switch {
	case err != nil:
		return Answer{}, err
	case refusal != "":
		return Answer{}, fmt.Errorf("%s refuses a bootstrap without resources: %s", path, refusal)
	case a.Bootstrap != "":
		for i := range all {
			a.Skipped = append(a.Skipped, i)
		}
		return a.Answer, nil
	}
	var clusters, rest []int
	for i, r := range all {
		switch which := a.kind(r); which {
		case none:
			a.Skipped = append(a.Skipped, i)
		case asCluster:
			clusters = append(clusters, i)
		default:
			rest = append(rest, i)
		}
	}
	whole, err := a.run(ctx, append(append([]int{}, clusters...), rest...))
	if err != nil || whole == "" {
		return a.Answer, err
	}
	// Listeners may need clusters, and clusters need no listeners.
	if err := a.halve(ctx, nil, clusters); err != nil {
		return a.Answer, err
	}
	var good []int
	for _, i := range clusters {
		if a.Refused[i] == "" {
			good = append(good, i)
		}
	}
	return a.Answer, a.halve(ctx, good, rest)
}

var versionOfEnvoy = regexp.MustCompile(`version: \w+/\d+\.\d+`)

// isEnvoy returns an error if a program does not say that it is an Envoy: another one may end
// without an error, whatever it is given, and so take all resources.
func isEnvoy(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said, err := exec.CommandContext(ctx, path, "--version").Output()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return err
	}
	if err != nil || !versionOfEnvoy.Match(said) {
		return fmt.Errorf("%s is not an Envoy: it does not answer --version as Envoy does", path)
	}
	return nil
}

type asking struct {
	Answer
	types      *envoy.Types
	path, file string
	all        []Resource
	beside     []protoreflect.Message // bootstraps
}

// halve finds those of some resources that Envoy refuses beside others that it takes.
func (a *asking) halve(ctx context.Context, beside, some []int) error {
	if len(some) == 0 {
		return nil
	}
	if a.Runs >= mostRuns {
		a.Skipped = append(a.Skipped, some...)
		return nil
	}
	refusal, err := a.run(ctx, append(append([]int{}, beside...), some...))
	if err != nil || refusal == "" {
		return err
	}
	if len(some) == 1 {
		a.Refused[some[0]] = refusal
		return nil
	}
	before := len(a.Refused) + len(a.Skipped)
	half := len(some) / 2
	if err := a.halve(ctx, beside, some[:half]); err != nil {
		return err
	}
	if err := a.halve(ctx, beside, some[half:]); err != nil {
		return err
	}
	if len(a.Refused)+len(a.Skipped) == before { // each half is good by itself
		a.Refused[some[half]] = refusal
	}
	return nil
}

// saidWhy finds what Envoy says at its end.
var saidWhy = regexp.MustCompile(`(?s)error initializing configuration '[^']*': (.*)$`)

// run returns why Envoy refuses some of the resources together, "" if it takes them.
func (a *asking) run(ctx context.Context, some []int) (refusal string, err error) {
	a.Runs++
	bootstrap, err := a.bootstrap(some)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(a.file, bootstrap, 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, a.path, "--mode", "validate", "-c", a.file, "-l", "critical")
	cmd.Stderr = &stderr
	err = cmd.Run()
	if err == nil {
		return "", nil
	}
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		return "", err
	}
	said := stderr.String()
	if m := saidWhy.FindStringSubmatch(said); m != nil {
		return essence(m[1]), nil
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s did not end within %v", a.path, patience)
	}
	if len(some) == 0 {
		return "", fmt.Errorf("%s: %w: %s", a.path, err, last(said))
	}
	return "it failed without a reason: " + err.Error() + ": " + last(said), nil
}

const broken = "Proto constraint validation failed"

// essence returns what is wrong without the text of the message, which Envoy quotes.
func essence(said string) string {
	if i := strings.LastIndex(said, broken); i >= 0 {
		said = said[i:]
	} else if i := strings.Index(said, "goo.gle/debug"); i > 0 {
		said = said[:i]
	}
	said = strings.TrimRight(strings.Join(strings.Fields(said), " "), ": ")
	if len(said) > 500 {
		said = said[:200] + " … " + said[len(said)-300:]
	}
	return strings.ToValidUTF8(said, "")
}

func last(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return essence(lines[len(lines)-1])
}
