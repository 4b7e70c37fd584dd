//go:build unix

package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/chancery-xds/chancery/internal/text"
)

// deniedHint explains which mode and owner stop this program from reading a path, with the command that lets its
// group read.
func deniedHint(path string) string {
	info, err := os.Stat(path)
	for err != nil && errors.Is(err, fs.ErrPermission) && filepath.Dir(path) != path { // a directory above denies access
		path = filepath.Dir(path)
		info, err = os.Stat(path)
	}
	if err != nil {
		return ""
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	allow := "chmod g+r "
	if info.IsDir() {
		allow = "chmod g+rx "
	}
	allow += text.ShellQuoted(path)
	group := groupName(os.Getegid())
	if mine, _ := os.Getgroups(); int(s.Gid) != os.Getegid() && !slices.Contains(mine, int(s.Gid)) {
		allow = "chgrp " + group + " " + text.ShellQuoted(path) + " && " + allow
	}
	return fmt.Sprintf("%s has mode %04o, owner %s and group %s; this program is user %s of group %s: %s",
		path, info.Mode().Perm(), userName(int(s.Uid)), groupName(int(s.Gid)), userName(os.Geteuid()), group, allow)
}

func userName(id int) string {
	if u, err := user.LookupId(strconv.Itoa(id)); err == nil {
		return u.Username
	}
	return strconv.Itoa(id)
}

func groupName(id int) string {
	if g, err := user.LookupGroupId(strconv.Itoa(id)); err == nil {
		return g.Name
	}
	return strconv.Itoa(id)
}
