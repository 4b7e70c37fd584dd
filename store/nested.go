package store

import (
	"errors"
	"runtime"
	"sync/atomic"
)

// errNested is what both get: an Update that the function of another calls, and that other.
var errNested = errors.New("store: Update was called by the function that is given to Update, and would wait for itself for ever: write with the Tx that this function has")

// open counts the transactions of all stores that have begun and not ended.
var open atomic.Int64

// begin notes that a transaction has its turn.
func begin(tx *txn) {
	open.Add(1)
	tx.st.turn.Store(tx)
}

// end notes that it has ended, before the next has its turn.
func end(tx *txn) {
	tx.done = true
	tx.st.turn.Store(nil)
	open.Add(-1)
}

// nested reports whether the transaction whose turn it is runs further down on the stack of
// the caller, which is Update and would wait for it for ever. That transaction fails then:
// what the caller wanted to write is not lost without a word. It is asked by who has to wait
// only.
//
// Go does not say whose a lock is. But what the stack has of Update has begun a transaction
// each, and if all that there are were begun on the stack, then this one was. If other stores
// have transactions at this moment, that is not known, nor is it of a function that waits for
// a goroutine which calls Update: the answer is no, and the caller waits.
func (st *Store) nested() bool {
	tx := st.turn.Load()
	if tx == nil {
		return false
	}
	here, all := below(), open.Load()
	if here == 0 || all != here || st.turn.Load() != tx { // it was counted all the time
		return false
	}
	if tx.err == nil {
		tx.err = errNested
	}
	return true
}

// below returns how often Update is on the stack below the Update that asks.
func below() (n int64) {
	pcs := make([]uintptr, 256) // what is further down is not seen
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	update, more := frames.Next()
	for more {
		var f runtime.Frame
		if f, more = frames.Next(); f.Function == update.Function {
			n++
		}
	}
	return n
}
