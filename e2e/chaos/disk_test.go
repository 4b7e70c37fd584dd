package chaos

var diskRows []row
