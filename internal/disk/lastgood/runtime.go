package lastgood

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// RuntimeRoot returns the directory for the folders of this user's programs that store nothing. These
// folders only have a socket, so they may be lost at a restart of the machine.
func RuntimeRoot() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "chancery")
	}
	return filepath.Join(os.TempDir(), "chancery-"+strconv.Itoa(os.Geteuid()))
}

// OpenRuntime opens the folder below [RuntimeRoot] for a served directory, as [Open] does.
func OpenRuntime(served string) (*Keeper, error) {
	root := RuntimeRoot()
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	if err := makePrivate(root); err != nil {
		return nil, err
	}
	folder, err := Folder(root, served)
	if err != nil {
		return nil, err
	}
	return Open(folder)
}

// controlName is the file name of a control socket in its folder.
const controlName = "admin"

// OpenControl opens the folder for the control socket of this process, as [OpenRuntime] does, and returns the
// path of the socket.
func OpenControl() (*Keeper, string, error) {
	k, err := OpenRuntime(fmt.Sprintf("/control/%d", os.Getpid()))
	if err != nil {
		return nil, "", err
	}
	return k, filepath.Join(k.dir, controlName), nil
}

// ControlSockets returns the paths of the control sockets of this user on which a server listens.
func ControlSockets(ctx context.Context) (open []string) {
	all, _ := filepath.Glob(filepath.Join(RuntimeRoot(), "*", controlName)) // the pattern is valid
	for _, path := range all {
		if c, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
			c.Close()
			open = append(open, path)
		}
	}
	return open
}
