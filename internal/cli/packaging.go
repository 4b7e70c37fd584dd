package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// PackagingCommand returns the hidden command that writes the further files of a package: manual pages
// and completions. It is for maintainers of packages.
func PackagingCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "packaging OUT",
		Short:  "Write the manual pages and shell completions, for packages",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := writePackaging(cmd.Root(), args[0]); err != nil {
				return Fail(err, "")
			}
			return nil
		},
	}
}

// writePackaging writes two directories to out: man with chancery.1 and a page for each command, and
// completion with chancery.bash, .zsh and .fish.
func writePackaging(root *cobra.Command, out string) error {
	files := map[string][]byte{}
	for _, cmd := range documented(root) {
		files[filepath.Join("man", pageOf(cmd)+".1")] = manualPage(cmd)
	}
	for shell, write := range map[string]func(*bytes.Buffer) error{
		"bash": func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) },
		"zsh":  func(b *bytes.Buffer) error { return root.GenZshCompletion(b) },
		"fish": func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return fmt.Errorf("completion of %s: %w", shell, err)
		}
		files[filepath.Join("completion", "chancery."+shell)] = b.Bytes()
	}
	for name, content := range files {
		path := filepath.Join(out, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// documented returns a command and its documented subcommands.
func documented(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if (c.IsAvailableCommand() || c.Name() == LimitsTopic) && c.Name() != "completion" {
			all = append(all, documented(c)...)
		}
	}
	return all
}

// pageOf returns the name of a command's manual page: chancery-bootstrap-envoy.
func pageOf(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }
