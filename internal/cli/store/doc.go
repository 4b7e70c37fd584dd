// Package store contains the commands that commit to a revision store, list its revisions and control what its servers
// serve: apply, history, rollback, freeze, rollout and more.
package store
