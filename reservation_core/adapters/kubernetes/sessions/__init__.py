"""The ways into running pods: the API server's exec, attach and portforward over WebSockets."""
