package files

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/check/envoybinary"
	sensitive "github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// hiddenReason is shown instead of Envoy's error if the resource has secrets.
const hiddenReason = "the reason is not shown, because it may quote a secret"

// askEnvoy adds the errors that a real Envoy finds, in resources in which Chancery found no error. Envoy
// validates each group together with the included groups, because an Envoy never gets the resources of
// all groups.
func (k *checker) askEnvoy(ctx context.Context, c dir.Checked) (dir.Checked, error) {
	var errs, warnings []findings.Problem
	broken := c.BrokenClusters()
	for _, view := range c.Views() {
		more, doubts, err := k.askEnvoyAbout(ctx, view, broken)
		if err != nil {
			return c, err
		}
		errs, warnings = addNew(errs, more), addNew(warnings, doubts)
	}
	return c.With(errs, warnings, k.opts.MaxProblems), nil
}

// addNew appends the problems that the list does not have yet: several groups may include the same
// invalid resource.
func addNew(all, more []findings.Problem) []findings.Problem {
	for _, p := range more {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// askEnvoyAbout validates resources that one Envoy may get together; broken are names of clusters with errors.
func (k *checker) askEnvoyAbout(ctx context.Context, view dir.View, broken []string) (errs, warnings []findings.Problem, err error) {
	var asked []dir.Loaded
	var all []envoybinary.Resource
	for _, l := range view.Loaded {
		if !l.Type.V2 {
			asked = append(asked, l)
			all = append(all, envoybinary.Resource{Type: l.Type, Name: l.Name, Body: l.Body})
		}
	}
	for _, name := range broken {
		all = append(all, envoybinary.Resource{Type: xds.Cluster, Name: name, Broken: true})
	}
	var bootstraps []protoreflect.Message
	var files []string
	secret, finder := false, sensitive.NewFinder(k.opts.Types)
	for _, b := range slices.Concat(k.given, view.Bootstraps) {
		bootstraps, files = append(bootstraps, b.Message.ProtoReflect()), append(files, b.File)
		secret = secret || len(finder.Find(b.Message).Values) > 0
	}
	answer, err := envoybinary.Ask(ctx, k.envoy, k.opts.Types, all, bootstraps...)
	if err != nil {
		return nil, nil, err
	}
	if why := answer.Bootstrap; why != "" {
		if secret {
			why = hiddenReason
		}
		errs = append(errs, findings.Problem{File: files[0], Code: findings.RefusedByEnvoy, Message: fmt.Sprintf("Envoy refuses the content of %s: %s", strings.Join(files, " and "), why)})
	}
	for i, l := range asked {
		why, refused := answer.Rejected[i]
		if !refused {
			continue
		}
		if l.Secret != "" {
			why = hiddenReason
		}
		errs = append(errs, l.Pos.Problem(findings.RefusedByEnvoy, fmt.Sprintf("Envoy refuses %s %q: %s", l.Type, l.Name, why)))
	}
	skipped := map[string]int{} // by type
	for _, i := range answer.Skipped {
		skipped[asked[i].Type.URL]++
	}
	for _, i := range answer.Skipped {
		l := asked[i]
		if n := skipped[l.Type.URL]; n > 0 {
			p := l.Pos.Problem(findings.NotValidated, fmt.Sprintf("Envoy did not validate %s; the first is %q", text.Amount(n, l.Type.String()+" resource"), l.Name))
			p.Warning = true
			warnings = append(warnings, p)
			skipped[l.Type.URL] = 0
		}
	}
	return errs, warnings, nil
}
