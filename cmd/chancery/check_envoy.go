package main

import (
	"context"
	"fmt"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/askenvoy"
	"github.com/chancery-xds/chancery/source/dir"
)

// ask adds what a real Envoy says of the resources in which nothing is wrong by itself.
func (k *checking) ask(ctx context.Context, c dir.Checked) (dir.Checked, error) {
	var asked []dir.Loaded
	var all []askenvoy.Resource
	for _, l := range c.Sound() {
		if !l.Type.V2 {
			asked = append(asked, l)
			all = append(all, askenvoy.Resource{Type: l.Type, Name: l.Name, Body: l.Body})
		}
	}
	answer, err := askenvoy.Ask(ctx, k.envoy, k.opts.Types, all)
	if err != nil {
		return c, err
	}
	var errs, warnings []findings.Problem
	for i, l := range asked {
		why, refused := answer.Refused[i]
		if !refused {
			continue
		}
		if l.Secret != "" {
			why = "the reason is not shown, because it may quote a secret"
		}
		errs = append(errs, l.Pos.Problem(findings.Refused, fmt.Sprintf("Envoy refuses %s %q: %s", l.Type, l.Name, why)))
	}
	skipped := map[string]int{} // by type
	for _, i := range answer.Skipped {
		skipped[asked[i].Type.URL]++
	}
	for _, i := range answer.Skipped {
		l := asked[i]
		if n := skipped[l.Type.URL]; n > 0 {
			p := l.Pos.Problem(findings.NotTried, fmt.Sprintf("Envoy did not validate %s; the first is %q", count(n, l.Type.String()+" resource"), l.Name))
			p.Warning = true
			warnings = append(warnings, p)
			skipped[l.Type.URL] = 0
		}
	}
	return c.With(errs, warnings, k.opts.Most), nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}
