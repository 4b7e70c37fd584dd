package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
)

// PageURL returns the URL of a view of the operator's page. The result is "" for a server on a unix socket, because
// browsers cannot open it.
func (a *AdminFlags) PageURL(query url.Values, parts ...string) string {
	base := strings.TrimRight(cmp.Or(a.Target.URL, adminclient.DefaultURL), "/")
	if !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
		return ""
	}
	for _, part := range parts {
		base += "/" + api.Segment(part)
	}
	if len(parts) == 0 {
		base += "/"
	}
	if len(query) > 0 {
		base += "?" + query.Encode()
	}
	return base
}

// PrintPage prints the URL of a view for -o wide.
func (a *AdminFlags) PrintPage(w io.Writer, o *Output, query url.Values, parts ...string) {
	if at := a.PageURL(query, parts...); at != "" && o.Wide() && !o.NoHeaders {
		fmt.Fprintf(w, "\nPAGE     %s\n", at)
	}
}

// OpenPage prints the URL of a view. It also opens the URL in a browser, if the output is a terminal with a display.
func (a *AdminFlags) OpenPage(cmd *cobra.Command, query url.Values, parts ...string) error {
	if _, err := a.Dial(); errors.Is(err, adminclient.ErrTarget) {
		return err
	}
	at := a.PageURL(query, parts...)
	if at == "" {
		return Fail(fmt.Errorf("a browser cannot open %s", a.Target.URL), "give the HOST:PORT of --admin-listen; ssh -L 18001:localhost:18001 HOST reaches that of another machine")
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), at); err != nil {
		return Fail(err, "")
	}
	f, is := cmd.OutOrStdout().(*os.File)
	if !is {
		return nil
	}
	program := browser()
	if columns, _ := TerminalSize(f); columns == 0 || program == "" {
		return nil
	}
	if err := exec.Command(program, at).Start(); err != nil { //nolint:noctx // the URL is that of --admin; the browser outlives the command
		return Fail(fmt.Errorf("cannot open a browser: %w", err), "open the URL yourself")
	}
	return nil
}

// browser returns the program that opens a URL; "" if there is no display.
func browser() string {
	switch {
	case runtime.GOOS == "darwin":
		return "open"
	case os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY") != "":
		return "xdg-open"
	}
	return ""
}
