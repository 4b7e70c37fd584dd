package lastgood

import (
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
