-- name: fellows_of_user
-- Users who share a project with a user.
SELECT DISTINCT u.id, u.name
FROM project_members m
JOIN project_members o ON o.project = m.project
JOIN users u ON u.id = o.user_id
WHERE m.user_id = :user_id;
