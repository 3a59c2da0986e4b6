"""What many servers tell of their reads, in one report: ``pg_lookahead report``.

records     the one model of a report, as it is kept in JSON
queries     what is asked of a server and of its databases
collect     asks them all at once, within bounds of time and of connections
storage     what storage does at rising depths, measured by fio
judge       which reads look-ahead serves, what to set, what changed since: pure functions
terminal, html, prometheus   views of a report
command     the command line
"""
