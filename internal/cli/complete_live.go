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

// Limits of a completion: the time to wait for the server, and the number of values to offer.
const (
	completionTimeout = 500 * time.Millisecond
	maxCompletions    = 500
)

// A lookup requests the values of an argument from a server. It returns those that begin with typed.
type lookup func(ctx context.Context, d *adminclient.Client, typed string) ([]string, error)

// CompleteArg completes each argument with the lookup at its position. It reports no errors to the shell.
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
	for _, flag := range []string{"admin", "admin-token-file", "admin-ca", "admin-cert", "admin-key"} { // cobra completes before BindEnvironment runs
		if v := os.Getenv(variable(flag)); v != "" && !cmd.Flags().Changed(flag) {
			_ = cmd.Flags().Set(flag, v) // cannot fail for a string
		}
	}
	d, err := adminclient.Dial(a.Target)
	if err != nil {
		return nil, none
	}
	ctx, cancel := context.WithTimeout(Context(cmd), completionTimeout)
	defer cancel()
	found, err := by(ctx, d, typed)
	if err != nil && len(found) == 0 {
		return nil, none
	}
	// Do not offer names with control characters: a shell would need another encoding for them.
	found = slices.DeleteFunc(found, func(s string) bool {
		return !strings.HasPrefix(s, typed) || text.Line(s) != s || s == ""
	})
	slices.Sort(found)
	found = slices.Compact(found)
	if len(found) > 0 && !slices.ContainsFunc(found, func(s string) bool { return !strings.HasSuffix(s, "/") }) {
		none |= cobra.ShellCompDirectiveNoSpace
	}
	return found[:min(len(found), maxCompletions)], none
}

// CompleteNodes returns the ids of connected nodes.
func CompleteNodes(ctx context.Context, d *adminclient.Client, typed string) (all []string, err error) {
	pattern := ""
	if typed != "" && !strings.ContainsAny(typed, `*?[]{}\`) {
		pattern = typed + "**"
	}
	list, err := d.Clients(ctx, adminclient.Filter{Node: pattern, All: true, Limit: maxCompletions})
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

// TypeWords returns the type names to offer: lds, cds, …
func TypeWords() (all []string) {
	for _, t := range xds.Types() {
		all = append(all, strings.ToLower(t.Short))
	}
	return all
}

// CompleteResources returns values of the form TYPE/, and after a typed slash values of the form
// TYPE/NAME.
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
	list, err := d.Resources(ctx, adminclient.ResourceFilter{Type: TypeInPath(t), Limit: maxCompletions})
	if err != nil {
		return nil, err
	}
	for _, r := range list.Items {
		all = append(all, word+"/"+r.Name)
	}
	return all, nil
}

// CompleteKindsAndResources returns the arguments of the command get.
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
		panic(fmt.Sprint(err)) // the flag does not exist
	}
}
