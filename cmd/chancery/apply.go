package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/dircommit"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
)

// A committing is what commands are told that make a revision.
type committing struct {
	output
	storing
	note    revisions.Note
	timeout time.Duration
}

// flags are those of a command that does something to a store; who is the text of --author.
func (c *committing) flags(cmd *cobra.Command, who string) {
	f := cmd.Flags()
	f.SortFlags = false
	c.storing.flags(f)
	c.notes(f, who)
	c.output.flags(cmd, "text", "json", "yaml", "name")
}

// notes are the flags that say who does something, and why.
func (c *committing) notes(f *pflag.FlagSet, who string) {
	f.StringVarP(&c.note.Message, "message", "m", "", "why, in one line: `TEXT` that history shows")
	f.StringVar(&c.note.Author, "author", "", who+"; default: this user, at this host")
	f.DurationVar(&c.timeout, "timeout", storeTime, "maximum `time` to wait for the store")
}

// check looks at the flags; an error is one of usage.
func (c *committing) check() error {
	if strings.TrimSpace(c.note.Message) == "" {
		return errors.New("--message (-m) is missing: say why, for who reads the history")
	}
	return c.checkRest()
}

// checkRest is check of a command that needs no message.
func (c *committing) checkRest() error {
	if c.note.Message = strings.TrimSpace(c.note.Message); strings.ContainsAny(c.note.Message, "\n\r") {
		return errors.New("--message (-m): write it in one line")
	}
	if err := c.output.check(); err != nil {
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

// withStore calls f with the repository of a store.
func withStore(cmd *cobra.Command, at *storeFlags, timeout time.Duration, f func(ctx context.Context, r *revisions.Repository) error) error {
	return withEngine(cmd, at, timeout, func(ctx context.Context, _ revisions.Engine, r *revisions.Repository) error { return f(ctx, r) })
}

// withEngine calls f with what a store is kept in, too.
func withEngine(cmd *cobra.Command, at *storeFlags, timeout time.Duration, f func(ctx context.Context, e revisions.Engine, r *revisions.Repository) error) error {
	_, of, err := at.check()
	if err != nil {
		return err
	}
	e, closer, err := at.open(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer closer.Close()
	ctx, cancel := context.WithTimeout(contextOf(cmd), timeout)
	defer cancel()
	err = f(ctx, e, revisions.Open(e, revisions.Options{}))
	if p, is := errors.AsType[*revisionapi.Problem](err); is {
		return ofProblem(p)
	}
	_, told := errors.AsType[failure](err)
	switch {
	case err == nil || told:
		return err
	case of != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, revisions.ErrUnavailable)) && !errors.Is(err, revisions.ErrUnknown):
		hint := "--store says where it is, and --timeout for how long it is asked; one with TLS needs --store-tls or --store-ca"
		if at.tls() {
			hint = "--store says where it is, and --timeout for how long it is asked; is it one with TLS, which --store-tls, --store-ca and --store-cert are for?"
		}
		return failWith(noServer, fmt.Errorf("no etcd answers at %s: %w", of, err), hint)
	case errors.Is(err, revisions.ErrUnknown):
		return fail(err, "chancery history says what is committed")
	case errors.Is(err, revisions.ErrConflict):
		return failWith(conflicted, err, "look at what has changed (chancery history), and try again")
	case errors.Is(err, revisions.ErrNotFound):
		return failWith(notFound, err, "chancery history lists what is kept")
	}
	return fail(fmt.Errorf("%s: %w", at.url, err), "")
}

// ofProblem ends a command as an answer of the admin API does that says the same.
func ofProblem(p *revisionapi.Problem) error {
	code := misuse
	switch {
	case errors.Is(p, revisions.ErrNotFound):
		code = notFound
	case errors.Is(p, revisions.ErrConflict):
		code = conflicted
	case errors.Is(p, revisionapi.ErrCannot):
		code = failed
	}
	return failWith(code, printed(p), textutil.Line(p.Hint))
}

// An applying is what chancery apply is told by its flags.
type applying struct {
	committing
	load            dir.Options
	sets            []string
	prune, dryRun   bool
	ifHead          string
	insecureSecrets bool
}

func applyCommand() *cobra.Command {
	var a applying
	cmd := &cobra.Command{
		Use:   "apply DIR -m MESSAGE [--store URL]",
		Short: "Commit the configuration in a directory to a store",
		Long: `Apply reads DIR as serve does, and commits what it says to a store as one revision: all of it
or nothing. Servers of the store (chancery serve --store) serve it as soon as it is committed, but for groups that are frozen (chancery freeze): of these apply says
what is not served.

What is in the store and not in DIR stays; with --prune it is removed. So several directories can
feed one store, and apply says how many resources of the store are not in DIR. If nothing differs, no revision is made.

If somebody else commits at the same time, and changes nothing that this changes, both are
done. If both change the same, it is a conflict, and nothing is done. With --if-head REV it is one
as soon as the newest revision is not REV.

Without --store the server at --admin is asked, which serves a store, and takes commits if it
runs with --store-write, from those who show who they are: by a unix socket, a token or a client
certificate. It commits nothing that it would not serve. The author is who that is, and who they say.

Secrets are not sent over a network in plain text, unless --insecure-secrets is given.

Exit codes: 0 committed, or nothing differs; 1 DIR cannot be loaded, or the store cannot be read
or written; 2 wrong usage; 3 no server answers, or it lets nobody commit; 5 a conflict.`,
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
	a.committing.flags(cmd, "`WHO` makes the revision")
	f := cmd.Flags()
	f.BoolVar(&a.prune, "prune", false, "remove what is not in DIR")
	f.BoolVar(&a.dryRun, "dry-run", false, "print what would change, and commit nothing")
	f.StringVar(&a.ifHead, "if-head", "", "commit only if the newest revision is `REV`, such as r412; r0: if there is none")
	f.BoolVar(&a.load.Validate, "validate", false, "report what Envoy would refuse as an error, as chancery check does")
	f.BoolVar(&a.insecureSecrets, "insecure-secrets", false, "send secrets to the store in plain text, too")
	setFlag(f, &a.sets)
	sizeVar(f, &a.load.MaxFile, "max-file", 64<<20, "maximum `SIZE` of a file")
	followFlag(f, &a.load.FollowLinksOutside)
	v2Flag(f, &a.load.V2)
	cmd.ValidArgsFunction = directories
	usage(cmd)
	return cmd
}

func (a *applying) run(cmd *cobra.Command, root string) error {
	if a.dryRun && a.note.Message == "" {
		a.note.Message = "dry run"
	}
	if err := errors.Join(a.check(), checkMaxFile(a.load.MaxFile)); err != nil {
		return err
	}
	if a.ifHead != "" {
		if _, err := revisions.ParseNumber(a.ifHead); err != nil {
			return fmt.Errorf("--if-head: %w", err)
		}
	}
	a.at.make = true
	to, hint, err := a.plainly(cmd)
	if err != nil {
		return err
	}
	opts := a.load
	opts.Flag, opts.CEL, opts.References, opts.Log = flagOf, cel.Compile, true, slog.New(slog.DiscardHandler)
	opts.AllowEmpty, opts.AllowMassDelete = true, true
	if opts.Types, err = readSets(a.sets); err != nil {
		return err
	}
	if !a.insecureSecrets && to != "" {
		e := exposure{"over the network in plain text, to " + to, hint}
		opts.Review = func(all []dir.Loaded) ([]dir.Loaded, error) { return nil, e.refuse(all) }
	}
	items, _, err := dircommit.Read(root, opts)
	if err != nil {
		return notLoaded(cmd.ErrOrStderr(), root, "committed", err)
	}
	if len(items) == 0 {
		return fail(fmt.Errorf("%s has no resource: nothing is committed", root), "")
	}
	req := api.CommitRequest{Message: a.note.Message, Author: a.note.Author, Source: gitRevision(root), Prune: a.prune, DryRun: a.dryRun, IfHead: a.ifHead}
	done, err := askStore(cmd, &a.storing, a.timeout, func(ctx context.Context, r *revisions.Repository) (*api.Commit, error) {
		warn := func(next *revisions.Snapshot) ([]string, error) { return doubtsOf(next, opts), nil }
		return (&revisionapi.Committer{Repo: r, Review: warn}).Commit(ctx, items, req, req.Author)
	}, func(ctx context.Context, d *api.Daemon) (*api.Commit, error) {
		lines := make([]api.RevisionItem, len(items))
		for i, it := range items {
			lines[i] = revisionapi.Line(it)
		}
		return d.Commit(ctx, req, lines)
	})
	if err != nil {
		return err
	}
	if err := printCommit(&a.output, cmd, done); err != nil || !a.people() || done.Kept == 0 {
		return err
	}
	are, them := "are", "them"
	if done.Kept == 1 {
		are, them = "is", "it"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s of the store %s not in %s: --prune removes %s\n", amount(done.Kept, "resource"), are, textutil.Line(root), them)
	return nil
}

// doubtsOf says what a revision refers to that is missing. What cannot be served has none: its server says why.
func doubtsOf(next *revisions.Snapshot, opts dir.Options) []string {
	opts.Review = nil
	src := dir.New("", store.New(), opts)
	if err := src.Restore(dircommit.Config(next, time.Now())); err != nil {
		return nil
	}
	return doubtsIn(src)
}

// doubtsIn says what is doubtful in what a source has.
func doubtsIn(src *dir.Source) (all []string) {
	for _, p := range src.Summary().Warnings {
		all = append(all, p.Error())
	}
	return all
}

// plainly says where what is committed goes over a network in plain text, and what is against it; "": it does not.
func (s *storing) plainly(cmd *cobra.Command) (to, hint string, err error) {
	through, err := s.through(cmd)
	switch {
	case err != nil:
		return "", "", err
	case through && s.server.target.Plain():
		return s.server.target.URL, "https:// or unix:// as --admin", nil
	case through:
		return "", "", nil
	}
	_, of, err := s.at.check()
	if err == nil && s.at.plain(of) {
		to = of.String()
	}
	return to, "--store-tls or --store-ca", err
}

// printCommit says what became of a commit, or what would.
func printCommit(o *output, cmd *cobra.Command, c *api.Commit) error {
	for _, text := range c.Warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), textutil.Line(text))
	}
	w := cmd.OutOrStdout()
	if !o.people() {
		return data(o, w, c, []*api.Commit{c}, func(c *api.Commit) string { return c.Revision })
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

// gitRevision is that of the checkout that a directory is in; "": it is in none, or there is no git.
func gitRevision(root string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	b, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
