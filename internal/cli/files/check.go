package files

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/check/report"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/source/dir"
)

// A checker has the flags of chancery check, and checks files.
type checker struct {
	output, explain, envoy string
	bootstrap              string
	strict                 bool
	ignore, sets           []string
	opts                   dir.Options

	given []dir.Bootstrap // of --bootstrap; the others are in the directories
}

// Check returns the command check.
func Check() *cobra.Command {
	var k checker
	cmd := &cobra.Command{
		Use:   "check DIR|FILE|-...",
		Short: "Check configuration files for errors",
		Long: `Check validates configuration offline and reports every error with its location.
It reads directories as serve does, files, or standard input (-). It serves nothing,
and runs no other program unless --envoy is given. "chancery serve --help" describes
the files.

It also reports what Envoy would refuse: values that Envoy's API does not allow,
also inside every typed_config, and other errors that Envoy is known to refuse, such
as two virtual hosts with the same domain. Only Envoy itself can check the settings
of an extension: --envoy runs a real one.

_bootstrap.yaml, which "chancery import" writes into the directory, or the file given by
--bootstrap, is the bootstrap of the Envoy that gets the resources. Clusters and secrets
in it count as present, and --envoy gives Envoy the extensions in it. In the directory
of a group, _bootstrap.yaml counts for the nodes of that group.

A warning reports a probable mistake, such as a reference to a resource that no
file has, or a resource without references to it.

Each finding has a code, such as XDS0301. --explain prints what it means and how to
fix it. Check reports the first 100 errors and the first 100 warnings, and the number
of all others; --max-findings 0 reports all.

Exit codes: 0 no error, and with --strict no warning; 1 there is one; 2 wrong usage.`,
		Example: `  chancery check ./config
  chancery check ./config --envoy /usr/bin/envoy
  chancery check --explain XDS0301
  helm template . | chancery check -
  chancery check ./config -o json | jq -r '.findings[].file'`,
		Args: func(_ *cobra.Command, args []string) error {
			switch n := len(args); {
			case n == 0 && k.explain == "":
				return errors.New("check needs a directory, a file, or - for standard input")
			case n > 0 && k.explain != "":
				return errors.New("--explain needs a code, and no files")
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
	f.StringVarP(&k.output, "output", "o", "text", "`FORMAT` of the findings: "+report.Names)
	f.BoolVar(&k.strict, "strict", false, "exit with code 1 for warnings, too")
	f.IntVar(&k.opts.MaxProblems, "max-findings", protoyaml.MaxProblems, "maximum `number` of errors, and of warnings, to report; the others are only counted. 0: all")
	f.StringSliceVar(&k.ignore, "ignore", nil, "`CODES` of findings not to report; errors with which no server loads the files (XDS01, XDS0601) are always reported")
	f.StringVar(&k.explain, "explain", "", "print what a `CODE` means and how to fix it")
	f.StringVar(&k.envoy, "envoy", "", "`PATH` of an Envoy that validates the resources, too (envoy --mode validate)")
	cli.OfferValues(cmd, "output", slices.Sorted(maps.Keys(report.Formats))...)
	var codes []string
	for _, kind := range findings.All() {
		codes = append(codes, string(kind.Code)+"\t"+kind.Title)
	}
	cli.OfferValues(cmd, "explain", codes...)
	cli.OfferValues(cmd, "ignore", codes...)
	f.StringVar(&k.bootstrap, "bootstrap", "", "`FILE` with the bootstrap of the Envoy that gets the resources, instead of _bootstrap.yaml in the directories")
	dirload.ProtoSetFlag(f, &k.sets)
	cli.SizeFlag(f, &k.opts.MaxFile, "max-file", 64<<20, "maximum `SIZE` of a file")
	dirload.FollowLinksFlag(f, &k.opts.FollowLinksOutside)
	dirload.LegacyV2Flag(f, &k.opts.V2)
	return cmd
}

func (k *checker) explained(cmd *cobra.Command) error {
	kind, ok := findings.Explain(k.explain)
	if !ok {
		return fmt.Errorf("--explain: no finding has the code %q: docs/findings.md lists all codes", k.explain)
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), kind.Text())
	return err
}

// ignored returns the codes of --ignore.
func (k *checker) ignored() (codes []findings.Code, err error) {
	for _, name := range k.ignore {
		kind, ok := findings.Explain(strings.TrimSpace(name))
		switch {
		case !ok:
			return nil, fmt.Errorf("--ignore: no finding has the code %q", name)
		case kind.Code.IsAlwaysChecked():
			return nil, fmt.Errorf("--ignore: %s cannot be ignored: no server loads files with this error", kind.Code)
		}
		codes = append(codes, kind.Code)
	}
	return codes, nil
}

func (k *checker) run(cmd *cobra.Command, args []string) error {
	write := report.Formats[k.output]
	if write == nil {
		return fmt.Errorf("--output: must be %s, not %q", report.Names, k.output)
	}
	if err := dirload.CheckMaxFile(k.opts.MaxFile); err != nil {
		return err
	}
	switch {
	case k.opts.MaxProblems < 0:
		return fmt.Errorf("--max-findings: must be 0 or more, not %d", k.opts.MaxProblems)
	case k.opts.MaxProblems == 0:
		k.opts.MaxProblems = -1
	}
	ignore, err := k.ignored()
	if err != nil {
		return err
	}
	k.opts.Flag, k.opts.CEL = dirload.FlagOfOption, cel.Compile
	k.opts.Types, err = dirload.ReadProtoSets(k.sets)
	if err != nil {
		return err
	}
	opts := k.opts
	if k.envoy != "" {
		opts.MaxProblems = -1 // find all errors, not only --max-findings: Envoy must not validate resources with errors
	}
	var wrong []findings.Problem
	opts.ReadBootstraps = k.bootstrap == ""
	if k.bootstrap != "" {
		m, problems := dirload.ReadBootstrap(k.bootstrap, opts, func() (*os.File, error) { return os.Open(k.bootstrap) })
		if m != nil {
			opts.Bootstraps, k.given = []proto.Message{m}, []dir.Bootstrap{{File: k.bootstrap, Message: m}}
		}
		wrong = problems
		if len(wrong) > 0 { // its clusters and secrets are unknown
			ignore = append(ignore, findings.Dangling, findings.UnknownCluster, findings.Unused, findings.SecretSource)
		}
	}
	c := dir.CheckAll(args, cmd.InOrStdin(), opts, ignore...)
	wrong = append(wrong, c.BootstrapErrors...)
	r := report.Report{Program: cli.Version(), Files: c.Files, Groups: c.Groups}
	switch {
	case len(wrong) > 0 && k.envoy != "":
		first := findings.Problem{File: wrong[0].File, Code: findings.NotValidated, Warning: true, Message: "Envoy did not validate anything: the content of this file is unknown"}
		c = c.With(wrong, []findings.Problem{first}, k.opts.MaxProblems)
	case len(wrong) > 0:
		c = c.With(wrong, nil, k.opts.MaxProblems)
	case k.envoy != "":
		c, err = k.askEnvoy(cmd.Context(), c)
		if err != nil {
			return cli.Fail(err, "--envoy must be the path of an Envoy that can run on this machine")
		}
	}
	for _, n := range c.Counts {
		r.Counts = append(r.Counts, report.Count{Type: n.Type.String(), N: n.N})
	}
	r.Findings = slices.Concat(c.Errors, c.Warnings)
	r.Bad = len(c.Errors) > 0 || k.strict && len(c.Warnings) > 0
	if err := write(cmd.OutOrStdout(), r); err != nil {
		return cli.Fail(err, "")
	}
	if r.Bad {
		return cli.ErrFindings
	}
	return nil
}
