package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/protofile"
	"github.com/chancery-xds/chancery/internal/report"
	"github.com/chancery-xds/chancery/source/dir"
)

// errFindings ends a check that has found something, which is told already.
var errFindings = errors.New("there are findings")

// A checking is what a check was asked for.
type checking struct {
	output, explain, envoy string
	bootstrap              string
	strict                 bool
	ignore, sets           []string
	opts                   dir.Options

	stay []string // the files with bootstraps that were read
}

func checkCommand() *cobra.Command {
	var k checking
	cmd := &cobra.Command{
		Use:   "check DIR|FILE|-...",
		Short: "Check files of configuration",
		Long: `Check reads directories as serve does, files, or stdin (-), and tells every
mistake with its place. Nothing is served, and without --envoy no other program
is asked. See "chancery serve --help" for what files may hold.

It also finds what Envoy would refuse: values that Envoy's API does not allow,
inside of every typed_config too, and what Envoy was seen to refuse besides, such
as two virtual hosts with one domain. What an extension thinks of its settings,
Envoy alone knows: --envoy asks one.

_bootstrap.yaml, which "chancery import" writes into the directory, or the file of
--bootstrap, says what Envoy has from its bootstrap: clusters and secrets in there are
not missed, and --envoy gives it the extensions in there.

Warnings tell what is doubtful, such as a reference to a resource that no file
has, or a resource that nothing refers to.

Each finding has a code, such as XDS0301. --explain tells what it means and what
to do. The first 100 mistakes and the first 100 warnings are told, and how many more
there are; --max-findings 0 tells all.

Exit codes: 0 no mistake, and with --strict no warning; 1 there is one; 2 wrong use.`,
		Example: `  chancery check ./config
  chancery check ./config --envoy /usr/bin/envoy
  chancery check --explain XDS0301
  helm template . | chancery check -
  chancery check ./config -o json | jq -r '.findings[].file'`,
		Args: func(_ *cobra.Command, args []string) error {
			switch n := len(args); {
			case n == 0 && k.explain == "":
				return errors.New("check wants a directory, a file, or - for stdin")
			case n > 0 && k.explain != "":
				return errors.New("--explain wants a code and no files")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if k.explain != "" {
				return k.explained(cmd)
			}
			return k.run(cmd, args)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&k.output, "output", "o", "text", "`FORMAT` of what is found: "+report.Names)
	f.BoolVar(&k.strict, "strict", false, "fail if there is a warning, too")
	f.IntVar(&k.opts.Most, "max-findings", protofile.MaxProblems, "largest `number` of mistakes, and of warnings, that are told; the others are counted. 0: all")
	f.StringSliceVar(&k.ignore, "ignore", nil, "`CODES` of findings that are not told; what keeps a server from its files (XDS01, XDS0601) is always told")
	f.StringVar(&k.explain, "explain", "", "tell what a `CODE` means, and what to do")
	f.StringVar(&k.envoy, "envoy", "", "`PATH` of an Envoy that is asked, too: it is given the resources (envoy --mode validate)")
	offer(cmd, "output", slices.Sorted(maps.Keys(report.Formats))...)
	var codes []string
	for _, kind := range findings.All() {
		codes = append(codes, string(kind.Code)+"\t"+kind.Title)
	}
	offer(cmd, "explain", codes...)
	offer(cmd, "ignore", codes...)
	f.StringVar(&k.bootstrap, "bootstrap", "", "`FILE` with the bootstrap of the Envoy that gets the resources, in place of _bootstrap.yaml of the directories")
	setFlag(f, &k.sets)
	sizeVar(f, &k.opts.MaxFile, "max-file", 64<<20, "largest `SIZE` of a file")
	followFlag(f, &k.opts.FollowLinksOutside)
	v2Flag(f, &k.opts.V2)
	return cmd
}

// offer has a shell complete the values of a flag.
func offer(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
}

func (k *checking) explained(cmd *cobra.Command) error {
	kind, ok := findings.Explain(k.explain)
	if !ok {
		return fmt.Errorf("--explain: no finding has the code %q: docs/findings.md has all of them", k.explain)
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), kind.Text())
	return err
}

// ignored returns the codes that are left out.
func (k *checking) ignored() (codes []findings.Code, err error) {
	for _, name := range k.ignore {
		kind, ok := findings.Explain(strings.TrimSpace(name))
		switch {
		case !ok:
			return nil, fmt.Errorf("--ignore: no finding has the code %q", name)
		case kind.Code.Always():
			return nil, fmt.Errorf("--ignore: %s keeps the files from being served, and cannot be ignored", kind.Code)
		}
		codes = append(codes, kind.Code)
	}
	return codes, nil
}

func (k *checking) run(cmd *cobra.Command, args []string) error {
	write := report.Formats[k.output]
	if write == nil {
		return fmt.Errorf("--output: %q is none of %s", k.output, report.Names)
	}
	if err := checkMaxFile(k.opts.MaxFile); err != nil {
		return err
	}
	switch {
	case k.opts.Most < 0:
		return fmt.Errorf("--max-findings %d: want 0 or more", k.opts.Most)
	case k.opts.Most == 0:
		k.opts.Most = -1
	}
	ignore, err := k.ignored()
	if err != nil {
		return err
	}
	k.opts.Flag, k.opts.CEL = flagOf, cel.Compile
	if k.opts.Types, err = readSets(k.sets); err != nil {
		return err
	}
	opts := k.opts
	if k.envoy != "" {
		opts.Most = -1 // Envoy is not asked about what is wrong already, whether it is told or not
	}
	wrong := k.bootstraps(args)
	if len(wrong) > 0 { // then nobody knows what Envoy has from there
		ignore = append(ignore, findings.Dangling, findings.Unused, findings.SecretSource)
	}
	opts.Bootstraps = k.opts.Bootstraps
	c := dir.CheckAll(args, cmd.InOrStdin(), opts, ignore...)
	r := report.Report{Program: version(), Files: c.Files, Groups: c.Groups}
	switch {
	case len(wrong) > 0 && k.envoy != "":
		first := findings.Problem{File: wrong[0].File, Code: findings.NotTried, Warning: true, Message: "Envoy was not asked about anything: what it has from this file is not known"}
		c = c.With(wrong, []findings.Problem{first}, k.opts.Most)
	case len(wrong) > 0:
		c = c.With(wrong, nil, k.opts.Most)
	case k.envoy != "":
		if c, err = k.ask(cmd.Context(), c); err != nil {
			return failure{err, "--envoy wants the path of an Envoy that runs on this machine"}
		}
	}
	for _, n := range c.Counts {
		r.Counts = append(r.Counts, report.Count{Type: n.Type.String(), N: n.N})
	}
	r.Findings = slices.Concat(c.Errors, c.Warnings)
	r.Bad = len(c.Errors) > 0 || k.strict && len(c.Warnings) > 0
	if err := write(cmd.OutOrStdout(), r); err != nil {
		return failure{err, ""}
	}
	if r.Bad {
		return errFindings
	}
	return nil
}
