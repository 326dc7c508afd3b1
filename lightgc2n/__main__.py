from lightgc2n.cli.main import main

if __name__ == "__main__":
    main()
