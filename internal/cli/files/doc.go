// Package files contains the commands that read or write configuration files: check, preview, import, export, agent,
// bootstrap and reload.
package files
