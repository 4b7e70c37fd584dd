package chaos

var networkRows []row
var abuseRows []row
var diskRows []row
