package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/xds"
)

// A shell that completes waits this long for a server, and offers this much.
const (
	completeTime = 500 * time.Millisecond
	completeMost = 500
)

// A lookup asks a server what an argument may be, given what is typed of it.
type lookup func(ctx context.Context, d *adminclient.Client, typed string) ([]string, error)

// CompleteArg completes arguments, each by its lookup. A shell is told of no error.
func CompleteArg(a *AdminFlags, by ...lookup) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(by) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return lookUp(cmd, a, by[len(args)], typed)
	}
}

// CompleteFlag completes the value of a flag.
func CompleteFlag(a *AdminFlags, by lookup) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return lookUp(cmd, a, by, typed)
	}
}

func lookUp(cmd *cobra.Command, a *AdminFlags, by lookup, typed string) ([]string, cobra.ShellCompDirective) {
	none := cobra.ShellCompDirectiveNoFileComp
	for _, flag := range []string{"admin", "admin-token-file", "admin-ca", "admin-cert", "admin-key"} { // nothing has bound them yet
		if v := os.Getenv(variable(flag)); v != "" && !cmd.Flags().Changed(flag) {
			_ = cmd.Flags().Set(flag, v) // is a text
		}
	}
	d, err := adminclient.Dial(a.Target)
	if err != nil {
		return nil, none
	}
	ctx, cancel := context.WithTimeout(Context(cmd), completeTime)
	defer cancel()
	found, err := by(ctx, d, typed)
	if err != nil && len(found) == 0 {
		return nil, none
	}
	// What a shell would have to be told in another way cannot be completed.
	found = slices.DeleteFunc(found, func(s string) bool {
		return !strings.HasPrefix(s, typed) || text.Line(s) != s || s == ""
	})
	slices.Sort(found)
	if found = slices.Compact(found); len(found) > 0 && !slices.ContainsFunc(found, func(s string) bool { return !strings.HasSuffix(s, "/") }) {
		none |= cobra.ShellCompDirectiveNoSpace
	}
	return found[:min(len(found), completeMost)], none
}

// CompleteNodes are the ids of nodes that are connected.
func CompleteNodes(ctx context.Context, d *adminclient.Client, typed string) (all []string, err error) {
	pattern := ""
	if typed != "" && !strings.ContainsAny(typed, `*?[]{}\`) {
		pattern = typed + "**"
	}
	list, err := d.Clients(ctx, adminclient.Filter{Node: pattern, All: true, Limit: completeMost})
	if err != nil {
		return nil, err
	}
	for _, c := range list.Items {
		all = append(all, c.Node)
	}
	return all, nil
}

func groupNames(ctx context.Context, d *adminclient.Client, _ string) (all []string, err error) {
	list, err := d.Groups(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range list.Items {
		all = append(all, g.Name)
	}
	return all, nil
}

// TypeWords are the names of types that are offered: listener, cluster, …
func TypeWords() (all []string) {
	for _, t := range xds.Types() {
		all = append(all, strings.ToLower(t.Short))
	}
	return all
}

// CompleteResources are TYPE/ and then TYPE/NAME.
func CompleteResources(ctx context.Context, d *adminclient.Client, typed string) (all []string, err error) {
	word, _, named := strings.Cut(typed, "/")
	if !named {
		for _, w := range TypeWords() {
			all = append(all, w+"/")
		}
		return all, nil
	}
	t, _, err := ParseTypeAndName(typed)
	if err != nil {
		return nil, err
	}
	list, err := d.Resources(ctx, adminclient.ResourceFilter{Type: TypeInPath(t), Limit: completeMost})
	if err != nil {
		return nil, err
	}
	for _, r := range list.Items {
		all = append(all, word+"/"+r.Name)
	}
	return all, nil
}

// CompleteKindsAndResources is what get takes.
func CompleteKindsAndResources(ctx context.Context, d *adminclient.Client, typed string) (all []string, err error) {
	if strings.Contains(typed, "/") {
		return CompleteResources(ctx, d, typed)
	}
	return append(TypeWords(), "all", "clients", "events", "groups", "nacks"), nil
}

// GroupFlag adds --group.
func GroupFlag(cmd *cobra.Command, a *AdminFlags, to *string) {
	cmd.Flags().StringVarP(to, "group", "g", "", "only of this `GROUP`")
	if err := cmd.RegisterFlagCompletionFunc("group", CompleteFlag(a, groupNames)); err != nil {
		panic(fmt.Sprint(err)) // there is no such flag
	}
}
