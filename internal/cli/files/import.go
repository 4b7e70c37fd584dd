package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/envoy/export"
	"github.com/chancery-xds/chancery/internal/envoy/importer"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// importFlags are the flags of chancery import.
type importFlags struct {
	from, admin    string
	to             importer.Write
	options        importer.Options
	sets           []string
	maxFile        int64
	dry            bool
	stdin          io.Reader
	stdout, stderr io.Writer
}

// Import returns the command import.
func Import() *cobra.Command {
	var i importFlags
	cmd := &cobra.Command{
		Use:   "import FILE|DIR|- --out DIR",
		Short: "Convert an Envoy's own configuration to files for chancery serve",
		Long: `Import converts the configuration of an Envoy to a directory for "chancery serve":

  FILE           a bootstrap with static_resources, in YAML or JSON, or the config_dump
                 of Envoy's admin interface; "-" is standard input
  DIR            the files that an Envoy subscribes to (path_config_source), and its
                 bootstrap if it is there
  --from-admin   the config_dump of a running Envoy, from its admin interface

Import writes each resource to its own file, such as listeners/NAME.yaml, with its
comments. A listener without a name is named after its port: listener_8080. Config
sources that read an imported resource from a file or another server
(path_config_source, api_config_source) now read it from this server (ads). Forms that
only Envoy accepts, such as a mapping instead of a list, become forms that all readers
accept.

Settings that no server can send stay in _bootstrap.yaml, which serve does not send:
admin, node, layered_runtime, stats_sinks and the like, and the clusters that they need.
"chancery bootstrap envoy --from" makes a bootstrap from it that points to the server.

The directory must be new or empty, unless --force is given. Import writes all files,
or none. Files that contain secrets have mode 0600, and import never prints a secret. If the
directory has the setgid bit, as /etc/chancery of the packages, its group can read all files.

Envoy's admin interface writes "[redacted]" instead of private keys and other secrets.
A resource that contains it is an error, which names the place and the solution;
--without-redacted leaves such resources out.

Exit codes: 0 imported; 1 not imported, with the reason; 2 wrong usage.`,
		Example: `  chancery import /etc/envoy/envoy.yaml --out ./config
  chancery serve ./config
  chancery bootstrap envoy --from ./config/_bootstrap.yaml | envoy -c /dev/fd/0

  chancery import --from-admin 127.0.0.1:9901 --out ./config
  chancery import /etc/envoy/xds --out ./config          # lds.yaml, cds.yaml, ...
  chancery import envoy.yaml --out ./config --split-routes --eds
  chancery import envoy.yaml --dry-run                   # write nothing, print what would be written`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case i.admin != "" && len(args) > 0:
				return errors.New("either a file or --from-admin, not both")
			case i.admin == "" && len(args) != 1:
				return fmt.Errorf("import needs one file or directory, not %d", len(args))
			case i.to.Dir == "" && !i.dry:
				return errors.New("--out is missing: the directory to write to")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				i.from = args[0]
			}
			i.stdin, i.stdout, i.stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := dirload.CheckMaxFile(i.maxFile); err != nil {
				return err
			}
			return i.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&i.to.Dir, "out", "o", "", "`DIRECTORY` to write to; created if it does not exist")
	f.StringVar(&i.admin, "from-admin", "", "`HOST:PORT` or unix:///PATH of the admin interface of an Envoy to import from")
	f.BoolVar(&i.options.SplitRoutes, "split-routes", false, "move the routes in listeners to resources of their own (RDS), so that they can change without the listener")
	f.BoolVar(&i.options.EDS, "eds", false, "move the endpoints in STATIC clusters to resources of their own (EDS)")
	f.BoolVar(&i.to.Force, "force", false, "replace existing files of the same names, and keep all others")
	f.BoolVar(&i.options.WithoutRedacted, "without-redacted", false, "leave out resources with secrets that the admin interface shows as [redacted]")
	f.BoolVar(&i.dry, "dry-run", false, "write nothing, and print what would be written")
	dirload.ProtoSetFlag(f, &i.sets)
	cli.SizeFlag(f, &i.maxFile, "max-file", 64<<20, "maximum `SIZE` of a file, or of the answer of the admin interface")
	return cmd
}

func (i *importFlags) run(ctx context.Context) error {
	var err error
	i.options.Types, err = dirload.ReadProtoSets(i.sets)
	if err != nil {
		return err
	}
	files, err := i.read(ctx)
	if err != nil {
		return err
	}
	done, problems := importer.Do(files, i.options)
	if len(problems) > 0 {
		return i.refuse(problems)
	}
	if len(done.Resources) == 0 {
		hint := ""
		if done.HasDynamicResources {
			hint = "to import the resources that its dynamic_resources name, import the running Envoy (--from-admin), or the directory of the files that it reads"
		}
		return cli.Fail(errors.New("nothing is imported: no resource could be sent by a server"), hint)
	}
	checked, where := dir.Checked{}, i.to.Dir
	i.to.Check = func(root string) error {
		checked = dir.CheckAll([]string{root}, nil, dir.Options{Types: i.options.Types, MaxFile: i.maxFile, Flag: dirload.FlagOfOption}, unreported()...)
		for _, all := range [][]findings.Problem{checked.Errors, checked.Warnings} {
			for n, p := range all {
				if rel, err := filepath.Rel(root, p.File); err == nil {
					all[n].File = filepath.Join(where, rel)
				}
			}
		}
		checked.Warnings = slices.DeleteFunc(checked.Warnings, func(p findings.Problem) bool { return isInBootstrap(done, p) })
		if len(checked.Errors) > 0 {
			return i.refuse(checked.Errors)
		}
		return nil
	}
	if i.dry {
		if where == "" {
			where = "DIR"
		}
		err = i.dryRun(done)
	} else {
		err = done.To(i.to)
	}
	switch _, isFailure := errors.AsType[cli.Failure](err); {
	case errors.Is(err, importer.ErrNotEmpty):
		return cli.Fail(err, "choose a new directory, or use --force, which replaces files of the same names and keeps all others")
	case err != nil && !isFailure:
		return cli.Fail(err, "")
	case err != nil:
		return err
	}
	i.report(done, checked, where)
	return nil
}

// dryRun writes the import to a temporary directory.
func (i *importFlags) dryRun(done *importer.Import) error {
	temp, err := os.MkdirTemp("", "chancery-import-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	w := i.to
	w.Dir, w.Force = filepath.Join(temp, "dir"), false
	return done.To(w)
}

// read reads the files to import.
func (i *importFlags) read(ctx context.Context) (files []importer.File, err error) {
	one := func(f importer.File, err error) ([]importer.File, error) { return []importer.File{f}, err }
	if i.admin != "" {
		files, err = one(i.ask(ctx))
	} else if i.from == "-" {
		files, err = one(importer.Read("stdin", i.stdin, i.maxFile))
	} else {
		var info fs.FileInfo
		info, err = os.Stat(i.from)
		if err != nil {
			return nil, cli.Fail(err, "")
		}
		if info.IsDir() {
			if err := i.checkOutside(); err != nil {
				return nil, err
			}
			files, err = importer.ReadDir(i.from, i.maxFile)
		} else {
			files, err = one(importer.ReadFile(i.from, i.maxFile))
		}
	}
	if err != nil {
		if _, isFailure := errors.AsType[cli.Failure](err); !isFailure {
			err = cli.Fail(err, "")
		}
		return nil, err
	}
	i.to.Mode = importer.ModeOf(files)
	return files, nil
}

// checkOutside returns an error if the output directory is inside the input.
func (i *importFlags) checkOutside() error {
	if i.to.Dir == "" {
		return nil
	}
	inside, err := export.Inside(i.to.Dir, i.from)
	switch {
	case err != nil:
		return cli.Fail(err, "")
	case inside:
		return fmt.Errorf("--out: %s is inside %s, so it would be imported, too: choose a directory outside", i.to.Dir, i.from)
	}
	return nil
}

// ask requests the config_dump of a running Envoy.
func (i *importFlags) ask(ctx context.Context) (importer.File, error) {
	a, err := listen.Parse(i.admin)
	if err != nil {
		return importer.File{}, fmt.Errorf("--from-admin: %w", err)
	}
	return cli.EnvoyConfigDump(ctx, a, i.maxFile)
}

// unreported returns the codes of findings that an import does not report. Envoy already refused such
// values before the import. An unused resource is not reported either, because the bootstrap may use it.
func unreported() []findings.Code {
	codes := []findings.Code{findings.Unused}
	for _, k := range findings.All() {
		if k.Code.IsEnvoyRule() {
			codes = append(codes, k.Code)
		}
	}
	return codes
}

// isInBootstrap reports whether a warning is about a cluster that the bootstrap contains.
func isInBootstrap(done *importer.Import, p findings.Problem) bool {
	return p.Code == findings.Dangling && slices.ContainsFunc(done.Clusters, func(name string) bool {
		return strings.Contains(p.Message, fmt.Sprintf("refers to %s %q, ", xds.Cluster, name))
	})
}

// refuse prints the problems that make the import fail, and returns the error.
func (i *importFlags) refuse(problems []findings.Problem) error {
	for _, p := range problems {
		fmt.Fprintln(i.stderr, p.Text())
	}
	return cli.Fail(fmt.Errorf("nothing is imported: %s", text.Amount(findings.Count(problems), "error")), "")
}

// perFolder is the maximum number of files that are listed for each type.
const perFolder = 20

// report prints the result of the import.
func (i *importFlags) report(done *importer.Import, c dir.Checked, where string) {
	secrets := 0
	for folder, all := range byFolder(done.Resources) {
		for n, r := range all {
			if n == perFolder && len(all) > perFolder+1 {
				fmt.Fprintf(i.stdout, "%s and %s more\n", filepath.Join(where, folder), text.Amount(len(all)-perFolder, "file"))
				break
			}
			notes := ""
			if len(r.Notes) > 0 {
				notes = "  (" + strings.Join(r.Notes, "; ") + ")"
			}
			fmt.Fprintf(i.stdout, "%s  %s %q%s\n", filepath.Join(where, filepath.FromSlash(r.Path)), importer.Kind(r.Type), r.Name, notes)
		}
	}
	for _, o := range done.Files() {
		if o.Secret {
			secrets++
		}
	}
	bootstrap := ""
	if done.Bootstrap != nil {
		bootstrap = filepath.Join(where, done.Bootstrap.Path)
		stays := "only the address of the server"
		if len(done.Stays) > 0 {
			stays = strings.Join(done.Stays, ", ")
		}
		fmt.Fprintf(i.stdout, "%s  stays with Envoy: %s\n", bootstrap, stays)
	}
	for _, n := range done.Notes {
		fmt.Fprintln(i.stdout, "note:", n)
	}
	if secrets > 0 {
		access := "mode 0600"
		if i.to.Shared() {
			access = "mode 0640, readable by the group of the directory"
		}
		fmt.Fprintf(i.stdout, "note: %s with secrets (%s): serve sends secrets only to clients with certificates (--client-ca) or on this machine\n", text.Amount(secrets, "file"), access)
	}
	for _, p := range slices.Concat(done.Warnings, c.Warnings) {
		fmt.Fprintln(i.stderr, p.Error())
	}
	verb := "imported"
	if i.dry {
		verb = "would be imported"
	}
	fmt.Fprintf(i.stdout, "ok: %s %s", text.Amount(len(done.Resources), "resource"), verb)
	if n := findings.Count(done.Warnings) + findings.Count(c.Warnings); n > 0 {
		fmt.Fprintf(i.stdout, "; %s", text.Amount(n, "warning"))
	}
	fmt.Fprintln(i.stdout)
	if i.dry {
		return
	}
	fmt.Fprintf(i.stdout, "next: chancery serve %s\n", where)
	if bootstrap != "" {
		bootstrap = " --from " + bootstrap
	}
	fmt.Fprintf(i.stdout, "      chancery bootstrap envoy%s | envoy -c /dev/fd/0\n", bootstrap)
}

// byFolder yields each directory with its resources.
func byFolder(all []importer.Resource) func(func(string, []importer.Resource) bool) {
	return func(yield func(string, []importer.Resource) bool) {
		for start := 0; start < len(all); {
			folder, _, _ := strings.Cut(all[start].Path, "/")
			end := start
			for end < len(all) && strings.HasPrefix(all[end].Path, folder+"/") {
				end++
			}
			if !yield(folder, all[start:end]) {
				return
			}
			start = end
		}
	}
}
