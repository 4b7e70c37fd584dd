package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/storeclient"
	"github.com/chancery-xds/chancery/internal/cluster/dircommit"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
)

// commitFlags are the flags of commands that create a revision.
type commitFlags struct {
	cli.Output
	storeclient.Access
	note    revisions.Note
	timeout time.Duration
}

// flags adds the flags of a command that changes a store; author is the usage of --author.
func (c *commitFlags) flags(cmd *cobra.Command, author string) {
	f := cmd.Flags()
	f.SortFlags = false
	c.Access.Register(f)
	c.noteFlags(f, author)
	c.Output.Register(cmd, "text", "json", "yaml", "name")
}

// noteFlags adds the flags for the author and the reason of a change.
func (c *commitFlags) noteFlags(f *pflag.FlagSet, author string) {
	f.StringVarP(&c.note.Message, "message", "m", "", "reason, in one line: `TEXT` that history shows")
	f.StringVar(&c.note.Author, "author", "", author+"; default: this user, at this host")
	f.DurationVar(&c.timeout, "timeout", storeclient.Timeout, "maximum `time` to wait for the store")
}

// check checks the flags. Its errors are errors of usage.
func (c *commitFlags) check() error {
	if strings.TrimSpace(c.note.Message) == "" {
		return errors.New("--message (-m) is missing: give the reason, for readers of the history")
	}
	return c.checkOptional()
}

// checkOptional is check for a command that does not need a message.
func (c *commitFlags) checkOptional() error {
	c.note.Message = strings.TrimSpace(c.note.Message)
	if strings.ContainsAny(c.note.Message, "\n\r") {
		return errors.New("--message (-m): write it in one line")
	}
	if err := c.Output.Check(); err != nil {
		return err
	}
	if c.timeout <= 0 {
		return errors.New("--timeout: must be more than 0")
	}
	if c.note.Author == "" {
		c.note.Author = "unknown"
		if u, err := user.Current(); err == nil {
			c.note.Author = u.Username
		}
		if host, err := os.Hostname(); err == nil {
			c.note.Author += "@" + host
		}
	}
	return nil
}

// applyFlags are the flags of chancery apply.
type applyFlags struct {
	commitFlags
	load            dir.Options
	sets            []string
	prune, dryRun   bool
	ifHead          string
	insecureSecrets bool
}

// Apply returns the command apply.
func Apply() *cobra.Command {
	var a applyFlags
	cmd := &cobra.Command{
		Use:   "apply DIR -m MESSAGE [--store URL]",
		Short: "Commit the configuration in a directory to a store",
		Long: `Apply reads DIR as serve does, and commits its content to a store as one revision: all of it
or nothing. Servers of the store (chancery serve --store) serve it as soon as it is committed,
except for frozen groups (chancery freeze); apply reports the changes that are not served.

Resources in the store that DIR lacks stay; with --prune they are removed. So several
directories can share one store. Apply prints the number of resources that DIR lacks. If
nothing differs, it does not create a revision.

Concurrent commits both succeed if they change different resources. Otherwise the second one
fails with exit code 5 and changes nothing. With --if-head REV, apply also fails if the newest
revision is not REV.

Apply warns of values that Envoy would refuse. With --validate they are errors.

Without --store apply asks the server of a store at --admin. The server must run with
--store-write, and accepts commits only from authenticated callers: over a unix socket, or
with a token or a client certificate. It rejects a revision that it would not serve. The
author is the authenticated caller, with the name of --author.

Secrets are not sent over a network in plain text, unless --insecure-secrets is given.

Exit codes: 0 committed, or nothing differs; 1 DIR cannot be loaded, or the store cannot be read
or written; 2 wrong usage; 3 no server answers, or it denies the commit; 5 a conflict.`,
		Example: `  chancery apply ./config --store etcd://e1:2379,e2:2379,e3:2379/prod --store-ca ca.crt -m "raise the timeout of web"
  chancery apply ./config --store file:/var/lib/chancery/store --prune --dry-run
  chancery apply ./config --admin unix:///run/chancery/admin.sock -m "raise the timeout of web"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("apply needs one directory, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd, args[0]) },
	}
	a.commitFlags.flags(cmd, "`AUTHOR` of the revision")
	f := cmd.Flags()
	f.BoolVar(&a.prune, "prune", false, "remove resources that DIR lacks")
	f.BoolVar(&a.dryRun, "dry-run", false, "print what would change, and commit nothing")
	f.StringVar(&a.ifHead, "if-head", "", "commit only if the newest revision is `REV`, such as r412; r0: if the store has no revision")
	f.BoolVar(&a.load.Validate, "validate", false, "treat as an error a value that Envoy would refuse, as chancery check does")
	f.BoolVar(&a.insecureSecrets, "insecure-secrets", false, "also send secrets in plain text to the store")
	dirload.ProtoSetFlag(f, &a.sets)
	cli.SizeFlag(f, &a.load.MaxFile, "max-file", 64<<20, "maximum `SIZE` of a file")
	dirload.FollowLinksFlag(f, &a.load.FollowLinksOutside)
	dirload.LegacyV2Flag(f, &a.load.V2)
	cmd.ValidArgsFunction = cli.CompleteDirectory
	cli.ServerUsage(cmd)
	return cmd
}

func (a *applyFlags) run(cmd *cobra.Command, root string) error {
	if a.dryRun && a.note.Message == "" {
		a.note.Message = "dry run"
	}
	if err := errors.Join(a.check(), dirload.CheckMaxFile(a.load.MaxFile)); err != nil {
		return err
	}
	if a.ifHead != "" {
		if _, err := revisions.ParseNumber(a.ifHead); err != nil {
			return fmt.Errorf("--if-head: %w", err)
		}
	}
	a.At.MayCreate = true
	to, hint, err := a.PlainText(cmd)
	if err != nil {
		return err
	}
	opts := a.load
	opts.Flag, opts.CEL, opts.References, opts.Log = dirload.FlagOfOption, cel.Compile, true, slog.New(slog.DiscardHandler)
	opts.AllowEmpty, opts.AllowMassDelete = true, true
	opts.Types, err = dirload.ReadProtoSets(a.sets)
	if err != nil {
		return err
	}
	if !a.insecureSecrets && to != "" {
		e := dirload.Exposure{Way: "over the network in plain text, to " + to, Remedy: hint}
		opts.Review = func(all []dir.Loaded) ([]dir.Loaded, error) { return nil, e.Refuse(all) }
	}
	items, refusable, err := a.read(root, opts)
	if err != nil {
		return dirload.LoadError(cmd.ErrOrStderr(), root, "committed", err)
	}
	if len(items) == 0 {
		return cli.Fail(fmt.Errorf("%s contains no resource: nothing is committed", root), "")
	}
	req := api.CommitRequest{Message: a.note.Message, Author: a.note.Author, Source: storeclient.GitRevision(root), Prune: a.prune, DryRun: a.dryRun, IfHead: a.ifHead}
	done, err := storeclient.Ask(cmd, &a.Access, a.timeout, func(ctx context.Context, r *revisions.Repository) (*api.Commit, error) {
		warn := func(next *revisions.Snapshot) ([]string, error) { return warningsOf(next, opts), nil }
		return (&revisionapi.Committer{Repo: r, Review: warn}).Commit(ctx, items, req, req.Author)
	}, func(ctx context.Context, d *adminclient.Client) (*api.Commit, error) {
		lines := make([]api.RevisionItem, len(items))
		for i, it := range items {
			lines[i] = revisionapi.Line(it)
		}
		return d.Commit(ctx, req, lines)
	})
	if err != nil {
		return err
	}
	done.Warnings = append(refusable, done.Warnings...)
	if err := printCommit(&a.Output, cmd, done); err != nil || !a.ForPeople() || done.Kept == 0 {
		return err
	}
	are, them := "are", "them"
	if done.Kept == 1 {
		are, them = "is", "it"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s of the store %s not in %s: --prune removes %s\n", textutil.Amount(done.Kept, "resource"), are, textutil.Line(root), them)
	return nil
}

// read reads a directory. It returns a warning for each value that Envoy would refuse; with --validate such
// a value is an error.
func (a *applyFlags) read(root string, opts dir.Options) (items []*revisions.Item, refusable []string, err error) {
	strict := opts
	strict.Validate = true
	items, _, err = dircommit.Read(root, strict)
	if err == nil || a.load.Validate {
		return items, nil, err
	}
	refusable = asWarnings(err) // if the same directory can be loaded without the validation
	items, _, err = dircommit.Read(root, opts)
	return items, refusable, err
}

// asWarnings returns the errors of a directory, or of its rejected groups, as warnings.
func asWarnings(err error) (lines []string) {
	rejected, _ := errors.AsType[dir.RejectedGroups](err)
	for _, g := range rejected {
		lines = append(lines, asWarnings(g.Err)...)
	}
	errs, _ := errors.AsType[dir.Errors](err)
	for _, e := range errs {
		e.Warning = true
		lines = append(lines, e.Error())
	}
	return lines
}

// warningsOf returns the warnings about a revision, such as references to missing resources. It returns
// none for a revision that cannot be loaded, because the server reports the errors.
func warningsOf(next *revisions.Snapshot, opts dir.Options) []string {
	opts.Review = nil
	src := dir.New("", store.New(), opts)
	if err := src.Restore(dircommit.Config(next, time.Now())); err != nil {
		return nil
	}
	return dirload.Warnings(src)
}

// reviewRestored returns the warnings about the content of a rollback, also of values that Envoy refuses. It
// returns none for a revision that cannot be loaded, such as one with messages of a proto set.
func reviewRestored(next *revisions.Snapshot) ([]string, error) {
	src := dir.New("", store.New(), dir.Options{CEL: cel.Compile, References: true, V2: true, Log: slog.New(slog.DiscardHandler)})
	if err := src.Restore(dircommit.Config(next, time.Now())); err != nil {
		return nil, nil //nolint:nilerr // the rollback of such a revision has no warnings
	}
	return append(dirload.Warnings(src), dirload.Refusable(src)...), nil
}

// printCommit prints the changes of a commit or of a dry run.
func printCommit(o *cli.Output, cmd *cobra.Command, c *api.Commit) error {
	for _, text := range c.Warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), textutil.Line(text))
	}
	w := cmd.OutOrStdout()
	if !o.ForPeople() {
		return cli.PrintData(o, w, c, []*api.Commit{c}, func(c *api.Commit) string { return c.Revision })
	}
	signs := map[string]string{"added": "+", "changed": "~", "removed": "-"}
	for _, x := range c.Changes {
		line := signs[x.Change] + " " + textutil.Line(revisions.Key{Group: x.Group, Type: x.Type, Name: x.Name}.String())
		if x.Place != "" {
			line += "  " + textutil.Line(x.Place)
		}
		fmt.Fprintln(w, line)
	}
	switch {
	case c.DryRun && c.Set+c.Removed > 0:
		fmt.Fprintf(w, "would be committed after %s: %d set, %d removed\n", c.Base, c.Set, c.Removed)
	case c.Revision == c.Base:
		fmt.Fprintf(w, "nothing differs from %s\n", c.Revision)
	default:
		fmt.Fprintf(w, "%s: %d set, %d removed\n", c.Revision, c.Set, c.Removed)
	}
	printFrozen(w, c.Held)
	return nil
}
