// Package inspect has the commands that show the state of servers and clients.
package inspect
