package daemon

import (
	"context"
	"log/slog"
	"net"
	"os"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/listen"
)

// A controlSocket serves the admin API to the user of the server, in a folder of that user. So commands
// that need an authenticated caller work without a flag. The answers of the other listeners name its path.
type controlSocket struct {
	folder   *lastgood.Keeper
	listener net.Listener // nil: there is no socket
}

const (
	noControlSocket = "the control socket is not served"
	controlHint     = "XDG_RUNTIME_DIR or TMPDIR names a directory for it"
)

// open opens the socket. The server works without it.
func (c *controlSocket) open(log *slog.Logger) {
	folder, path, err := lastgood.OpenControl()
	if err != nil {
		log.Info(noControlSocket, "error", err, "hint", controlHint)
		return
	}
	if !folder.Storing() { // another server in this process has the socket
		return
	}
	at, err := listen.Parse("unix://" + path)
	var l net.Listener
	if err == nil {
		l, err = at.Open(context.Background())
	}
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		if l != nil {
			_ = l.Close()
		}
		folder.Release()
		log.Info(noControlSocket, "error", err, "hint", controlHint)
		return
	}
	c.folder, c.listener = folder, l
}

// path returns the path of the socket; "": there is none.
func (c *controlSocket) path() string {
	if c.listener == nil {
		return ""
	}
	return c.listener.Addr().String()
}

// close closes the socket and removes its folder.
func (c *controlSocket) close() {
	if c.listener != nil {
		_ = c.listener.Close() // also removes the file
		c.folder.Release()
		c.listener = nil
	}
}
