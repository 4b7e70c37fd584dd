package files

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/text"
)

// ofServers describes --state-dir for commands that store nothing themselves.
const ofServers = "`directory` in which servers, relays and agents store their last good configuration"

// State returns the command state.
func State() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state ls|rm",
		Short: "List or remove stored configurations",
		Long: `Servers, relays and agents store the last good configuration in a folder of --state-dir for
each DIR, with its secrets. No program removes the folder of a directory that is no longer
served. "chancery state ls" lists the folders, and "chancery state rm" removes some of them.`,
		Example: `  chancery state ls
  chancery state rm /etc/chancery-old
  chancery state rm --older-than 90d`,
	}
	cmd.AddCommand(stateList(), stateRemove())
	return cmd
}

// A stateFolder is an entry of the state directory, in the output of chancery state ls.
type stateFolder struct {
	Name        string    `json:"name"`
	Directory   string    `json:"directory,omitempty"`
	Description string    `json:"description,omitempty"`
	State       string    `json:"state"`
	Problem     string    `json:"problem,omitempty"`
	Bytes       int64     `json:"bytes"`
	Used        time.Time `json:"used"`
}

func stateList() *cobra.Command {
	var root string
	var o cli.Output
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the folders of the state directory",
		Long: `Ls lists the entries of --state-dir: the folder, the directory for which a server made it, when
a program last changed it, and its state.

  IN_USE    a running server, relay or agent uses the folder
  IDLE      no program uses it
  GONE      the same, and the directory does not exist any more
  DAMAGED   the stored configuration cannot be read
  DENIED    this user may not read the folder
  FOREIGN   not a folder of Chancery

A folder of an older version has no directory ("-") until a server uses it again.

Exit codes: 0 listed; 1 --state-dir cannot be read; 2 wrong usage.`,
		Example: `  chancery state ls
  chancery state ls -o json | jq -r '.items[] | select(.state == "GONE").name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Check(); err != nil {
				return err
			}
			all, err := stateEntries(root)
			if err != nil {
				return err
			}
			if !o.ForPeople() {
				items := make([]stateFolder, len(all))
				for i, e := range all {
					items[i] = stateFolder{e.Name, e.Directory, e.Description, string(e.Status), e.Problem, e.Bytes, e.Used.UTC()}
				}
				return cli.PrintData(&o, cmd.OutOrStdout(), cli.List[stateFolder]{APIVersion: api.Version, Kind: "StateFolderList", Items: items}, items, func(f stateFolder) string { return f.Name })
			}
			t := cli.Table{Headers: []string{"FOLDER", "OF", "STATE", "SIZE", "USED"}}
			if o.Wide() {
				t.Headers = append(t.Headers, "WHY")
			}
			for _, e := range all {
				row := []string{e.Name, cmp.Or(e.Directory, e.Description), string(e.Status), cli.BytesText(int(e.Bytes)), text.Since(e.Used)}
				if o.Wide() {
					row = append(row, e.Problem)
				}
				t.Row(row...)
			}
			t.Print(cmd.OutOrStdout(), &o)
			if len(all) == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "nothing is stored in %s\n", text.Line(root))
			}
			return nil
		},
	}
	cli.StateDirFlag(cmd.Flags(), &root)
	cmd.Flags().Lookup("state-dir").Usage = ofServers
	o.Register(cmd)
	return cmd
}

// stateEntries returns the entries of the state directory.
func stateEntries(root string) ([]lastgood.Entry, error) {
	if root == "" {
		_, err := lastgood.Root() // the reason, if there is no default
		return nil, cli.Fail(cmp.Or(err, errors.New("--state-dir is empty")), "--state-dir DIRECTORY chooses the state directory")
	}
	all, err := lastgood.List(root)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	return all, nil
}

// stateRemoval has the flags of chancery state rm.
type stateRemoval struct {
	root, olderThan string
	dryRun          bool
	age             time.Duration // olderThan, parsed; 0: the flag is not set
}

func stateRemove() *cobra.Command {
	var r stateRemoval
	cmd := &cobra.Command{
		Use:   "rm DIR|FOLDER... | --older-than AGE",
		Short: "Remove folders from the state directory",
		Long: `Rm removes the stored configuration of each DIR, and the endpoints registered at its server. A
folder can also be named as "chancery state ls" names it. With --older-than it removes the folders
that no program has changed for that long.

Rm does not remove a folder that a server, relay or agent uses. It removes a damaged folder only
if it is named, and never a foreign entry. If one of the arguments cannot be removed, it removes
none.

A server that starts later has no last good configuration for a removed DIR: with invalid files
it does not start.

Exit codes: 0 removed, also if no folder is old enough; 1 not removed, with the reason; 2 wrong
usage; 4 --state-dir has no such folder; 5 a program uses the folder.`,
		Example: `  chancery state rm /etc/chancery-old
  chancery state rm config-9f3c1ab2d4e5
  chancery state rm --older-than 90d --dry-run`,
		Args: func(_ *cobra.Command, args []string) error {
			if (len(args) > 0) == (r.olderThan != "") {
				return errors.New("rm needs directories or folders, or --older-than, and not both")
			}
			if slices.Contains(args, "") { // of an unset variable of a shell; it would mean the working directory
				return errors.New("rm: a directory or folder is empty")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.olderThan != "" {
				var err error
				r.age, err = parseAge(r.olderThan)
				if err != nil {
					return err
				}
			}
			return r.run(cmd, args)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&r.olderThan, "older-than", "", "remove the folders that no program has changed for this `AGE`, such as 90d or 12h")
	f.BoolVar(&r.dryRun, "dry-run", false, "print which folders would be removed, and remove nothing")
	cli.StateDirFlag(f, &r.root)
	f.Lookup("state-dir").Usage = ofServers
	cmd.ValidArgsFunction = cli.CompleteDirectory
	return cmd
}

// parseAge parses a duration that may be in days.
func parseAge(age string) (time.Duration, error) {
	d, err := time.ParseDuration(age)
	if days, is := strings.CutSuffix(age, "d"); is {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("--older-than: %q: must be an age such as 90d or 12h", age)
	}
	return d, nil
}

func (r *stateRemoval) run(cmd *cobra.Command, args []string) error {
	all, err := stateEntries(r.root)
	if err != nil {
		return err
	}
	var chosen []lastgood.Entry
	for _, arg := range args {
		e, err := r.find(all, arg)
		if err != nil {
			return err
		}
		if !slices.Contains(chosen, e) { // DIR and its folder
			chosen = append(chosen, e)
		}
	}
	for _, e := range all {
		if r.age == 0 || time.Since(e.Used) < r.age {
			continue
		}
		switch e.Status {
		case lastgood.Idle, lastgood.Gone:
			chosen = append(chosen, e)
		case lastgood.InUse:
		default:
			fmt.Fprintf(cmd.ErrOrStderr(), "left alone: %s: %s\n", text.Line(filepath.Join(r.root, e.Name)), text.Line(e.Problem))
		}
	}
	verb := "removed"
	if r.dryRun {
		verb = "to be removed"
	}
	for _, e := range chosen {
		if !r.dryRun {
			e, err = lastgood.Remove(r.root, e.Name)
			if err != nil {
				return r.refusal(e, err)
			}
		}
		of := ""
		if known := cmp.Or(e.Directory, e.Description); known != "" {
			of = ", of " + known
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s%s, %s\n", verb, text.Line(e.Name), text.Line(of), cli.BytesText(int(e.Bytes)))
	}
	if len(chosen) == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: nothing\n", verb)
	}
	return nil
}

// find returns the removable entry that an argument means: a served directory, or a folder.
func (r *stateRemoval) find(all []lastgood.Entry, arg string) (lastgood.Entry, error) {
	folder, err := lastgood.Folder(r.root, arg)
	if err != nil {
		return lastgood.Entry{}, cli.Fail(err, "")
	}
	i := slices.IndexFunc(all, func(e lastgood.Entry) bool { return e.Name == filepath.Base(folder) })
	if i < 0 {
		i = slices.IndexFunc(all, func(e lastgood.Entry) bool { return e.Name == arg })
	}
	if i < 0 {
		return lastgood.Entry{}, cli.FailWith(cli.NotFound, fmt.Errorf("%s has no folder for %s", text.Line(r.root), text.Line(arg)), "chancery state ls lists the folders; --state-dir and the user must be the same as for chancery serve")
	}
	switch e := all[i]; e.Status {
	case lastgood.InUse:
		return e, r.refusal(e, disk.ErrBusy)
	case lastgood.Foreign, lastgood.Denied:
		return e, r.refusal(e, errors.New(e.Problem))
	default:
		return e, nil
	}
}

// refusal returns the failure for an entry that is not removed.
func (r *stateRemoval) refusal(e lastgood.Entry, err error) error {
	path := text.Line(filepath.Join(r.root, e.Name))
	switch {
	case errors.Is(err, disk.ErrBusy):
		return cli.FailWith(cli.Conflicted, fmt.Errorf("%s is in use by a running server, relay or agent", path), "stop that program first")
	case errors.Is(err, fs.ErrNotExist):
		return cli.FailWith(cli.NotFound, fmt.Errorf("%s does not exist any more", path), "")
	case e.Status == lastgood.Foreign:
		return cli.Fail(fmt.Errorf("%s is not a folder of Chancery: %s", path, text.Line(err.Error())), "if you do not need it, remove it with rm")
	default:
		return cli.Fail(fmt.Errorf("%s: %s", path, text.Line(err.Error())), "run the command as the user of the server, or as root")
	}
}
