-- Amounts that a request names are on each of its nodes.
CREATE FUNCTION request_text(gpus integer, gpu_type text, nodes integer, cpu_milli bigint, memory_bytes bigint)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT request_text(gpus, gpu_type, nodes) || coalesce(' with ' || nullif(concat_ws(' and ',
        trim_scale(cpu_milli / 1000.0) || CASE WHEN cpu_milli = 1000 THEN ' CPU' ELSE ' CPUs' END,
        trim_scale(round(memory_bytes / 1073741824.0, 2)) || ' GiB'), ''), '')
$$;

-- Both views stay as they are but for that one column.
DO $$
DECLARE
    view_name text;
    said text;
BEGIN
    FOREACH view_name IN ARRAY ARRAY['queue_status', 'reservation_history'] LOOP
        said := replace(pg_get_viewdef(view_name::regclass), 'request_text(r.gpus, r.gpu_type, r.nodes)',
                        'request_text(r.gpus, r.gpu_type, r.nodes, r.cpu_milli, r.memory_bytes)');
        IF said NOT LIKE '%r.memory_bytes)%' THEN
            RAISE EXCEPTION 'The view % does not say what a request asks for.', view_name;
        END IF;
        EXECUTE format('CREATE OR REPLACE VIEW %I AS %s', view_name, said);
    END LOOP;
END $$;
