package inbound

import "syscall"

const hasRaw = true

func readNow(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }

func again(err error) bool  { return err == syscall.EINTR }  //nolint:errorlint // a system call wraps no error
func blocks(err error) bool { return err == syscall.EAGAIN } //nolint:errorlint // a system call wraps no error
