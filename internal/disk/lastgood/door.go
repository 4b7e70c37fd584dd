package lastgood

import (
	"os"
	"path/filepath"
	"strconv"
)

// DoorRoot returns where programs of this user that keep nothing have the folders in which
// they are reached: what is there ends with the machine, or before.
func DoorRoot() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "chancery")
	}
	return filepath.Join(os.TempDir(), "chancery-"+strconv.Itoa(os.Geteuid()))
}

// OpenDoor is as [Open] of the folder below [DoorRoot] for a served directory.
func OpenDoor(served string) (*Keeper, error) {
	root := DoorRoot()
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	if err := own(root); err != nil {
		return nil, err
	}
	folder, err := Folder(root, served)
	if err != nil {
		return nil, err
	}
	return Open(folder)
}
