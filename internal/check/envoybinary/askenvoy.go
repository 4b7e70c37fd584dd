// Package envoybinary checks resources with a real Envoy. It runs Envoy with --mode validate on a
// bootstrap that contains the resources. In this mode Envoy opens no port and makes no connection. The
// result depends on the version of that Envoy and on the machine.
package envoybinary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// A Resource is a resource to check.
type Resource struct {
	Type *xds.Type
	Name string
	Body []byte // the encoded message

	// Broken is set for a cluster that has an error and is not checked. Envoy gets an empty cluster in its
	// place, so that it does not refuse other resources because of it. The body is not used.
	Broken bool
}

// An Answer is the result of a check.
type Answer struct {
	// Rejected maps the index of a rejected resource to Envoy's reason. The reason is Envoy's own
	// text and may quote the resource.
	Rejected map[int]string

	// Skipped are the indexes of resources that were not checked, because a bootstrap cannot contain
	// them or because of the limit of runs.
	Skipped []int

	// Bootstrap is Envoy's reason for rejecting the given bootstraps. If it is not empty, no resource
	// was checked.
	Bootstrap string

	Runs int
}

const (
	maxRuns    = 300 // one run takes about 70 ms
	runTimeout = time.Minute
)

// Ask checks resources with the Envoy at a path. It finds the rejected resources by bisection. It
// also gives Envoy the parts of the bootstraps that resources may need.
func Ask(ctx context.Context, path string, types *envoy.Types, all []Resource, bootstraps ...protoreflect.Message) (Answer, error) {
	dir, err := os.MkdirTemp("", "chancery-check-") // mode 0700, because the files may contain secrets
	if err != nil {
		return Answer{}, err
	}
	defer os.RemoveAll(dir)
	if err := isEnvoy(ctx, path); err != nil {
		return Answer{}, err
	}
	a := &checker{types: types, path: path, file: filepath.Join(dir, "bootstrap.pb"), all: slices.Clone(all), userBootstraps: bootstraps, Answer: Answer{Rejected: map[int]string{}}}
	reason, err := a.run(ctx, nil)
	if err == nil && reason != "" && len(bootstraps) > 0 {
		a.Bootstrap, a.userBootstraps = reason, nil
		reason, err = a.run(ctx, nil)
	}
	switch {
	case err != nil:
		return Answer{}, err
	case reason != "":
		return Answer{}, fmt.Errorf("%s rejects a bootstrap without resources: %s", path, reason)
	case a.Bootstrap != "":
		for i, r := range all {
			if !r.Broken {
				a.Skipped = append(a.Skipped, i)
			}
		}
		return a.Answer, nil
	}
	var clusters, rest []int
	for i, r := range all {
		switch which := a.kind(r); {
		case r.Broken:
		case which == none:
			a.Skipped = append(a.Skipped, i)
		case which == asCluster:
			clusters = append(clusters, i)
		default:
			rest = append(rest, i)
		}
	}
	whole, err := a.run(ctx, append(append([]int{}, clusters...), rest...))
	if err != nil || whole == "" {
		return a.Answer, err
	}
	// Check clusters first: listeners may need clusters, but clusters do not need listeners.
	if err := a.bisect(ctx, nil, clusters); err != nil {
		return a.Answer, err
	}
	var good []int
	for _, i := range clusters {
		if a.Rejected[i] == "" {
			good = append(good, i)
		}
		a.all[i].Broken = a.all[i].Type.Is(xds.Cluster) && a.Rejected[i] != ""
	}
	return a.Answer, a.bisect(ctx, good, rest)
}

var versionOfEnvoy = regexp.MustCompile(`version: \w+/\d+\.\d+`)

// isEnvoy returns an error if a program is not an Envoy. Another program could exit without an error
// for any input, and so accept all resources.
func isEnvoy(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	output, err := exec.CommandContext(ctx, path, "--version").Output()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return err
	}
	if err != nil || !versionOfEnvoy.Match(output) {
		return fmt.Errorf("%s is not an Envoy: it does not answer --version as Envoy does", path)
	}
	return nil
}

type checker struct {
	Answer
	types          *envoy.Types
	path, file     string
	all            []Resource
	userBootstraps []protoreflect.Message // bootstraps of the user
}

// bisect runs Envoy with halves of the list some to find the resources that Envoy rejects. Each run
// also contains the accepted resources, which those of the list may need.
func (a *checker) bisect(ctx context.Context, accepted, some []int) error {
	if len(some) == 0 {
		return nil
	}
	if a.Runs >= maxRuns {
		a.Skipped = append(a.Skipped, some...)
		return nil
	}
	reason, err := a.run(ctx, append(append([]int{}, accepted...), some...))
	if err != nil || reason == "" {
		return err
	}
	if len(some) == 1 {
		a.Rejected[some[0]] = reason
		return nil
	}
	before := len(a.Rejected) + len(a.Skipped)
	half := len(some) / 2
	if err := a.bisect(ctx, accepted, some[:half]); err != nil {
		return err
	}
	if err := a.bisect(ctx, accepted, some[half:]); err != nil {
		return err
	}
	if len(a.Rejected)+len(a.Skipped) == before { // Envoy accepts each half without the other
		a.Rejected[some[half]] = reason
	}
	return nil
}

// reasonPattern matches the reason at the end of Envoy's output.
var reasonPattern = regexp.MustCompile(`(?s)error initializing configuration '[^']*': (.*)$`)

// run returns Envoy's reason for rejecting some resources together; "" if it accepts them.
func (a *checker) run(ctx context.Context, some []int) (reason string, err error) {
	a.Runs++
	bootstrap, err := a.bootstrap(some)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(a.file, bootstrap, 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
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
	output := stderr.String()
	if m := reasonPattern.FindStringSubmatch(output); m != nil {
		return shortReason(m[1]), nil
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s did not end within %v", a.path, runTimeout)
	}
	if len(some) == 0 {
		return "", fmt.Errorf("%s: %w: %s", a.path, err, last(output))
	}
	return "it failed without a reason: " + err.Error() + ": " + last(output), nil
}

const broken = "Proto constraint validation failed"

// shortReason returns Envoy's reason without the message text that it quotes.
func shortReason(output string) string {
	if i := strings.LastIndex(output, broken); i >= 0 {
		output = output[i:]
	} else if i := strings.Index(output, "goo.gle/debug"); i > 0 {
		output = output[:i]
	}
	output = strings.TrimRight(strings.Join(strings.Fields(output), " "), ": ")
	if len(output) > 500 {
		output = output[:200] + " … " + output[len(output)-300:]
	}
	return strings.ToValidUTF8(output, "")
}

func last(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return shortReason(lines[len(lines)-1])
}
